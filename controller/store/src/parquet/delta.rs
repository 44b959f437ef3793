//! Integers as bit-packed differences: Parquet's DELTA_BINARY_PACKED. Differences are small because
//! timestamps rise and delays are similar. Written here for speed: see the parent module. A miniblock is
//! packed by code for its bit width.

/// Differences per block; a block has a common minimum.
const BLOCK_LEN: usize = 256;

/// Differences per miniblock; a miniblock has a common bit width.
const MINIBLOCK_LEN: usize = 64;

/// The values of one page.
#[derive(Debug)]
pub(super) struct DeltaEncoder {
    first: Option<i64>,
    last: i64,
    count: u64,
    /// Differences of the incomplete block.
    block: [i64; BLOCK_LEN],
    filled: usize,
    /// Encoded complete blocks.
    packed: Vec<u8>,
}

impl DeltaEncoder {
    pub(super) fn new() -> Self {
        let block = [0; BLOCK_LEN];
        Self { first: None, last: 0, count: 0, block, filled: 0, packed: Vec::new() }
    }

    /// Appends values.
    pub(super) fn push(&mut self, values: &[i64]) {
        let mut rest = values;
        if let (None, Some((&first, later))) = (self.first, rest.split_first()) {
            (self.first, self.last, rest) = (Some(first), first, later);
        }
        self.count += values.len() as u64;
        while let Some(&next) = rest.first() {
            let (here, later) = rest.split_at(rest.len().min(BLOCK_LEN - self.filled));
            let block = &mut self.block[self.filled..self.filled + here.len()];
            block[0] = next.wrapping_sub(self.last);
            for (difference, pair) in block[1..].iter_mut().zip(here.windows(2)) {
                *difference = pair[1].wrapping_sub(pair[0]);
            }
            self.last = here[here.len() - 1];
            self.filled += here.len();
            if self.filled == BLOCK_LEN {
                self.close_block();
            }
            rest = later;
        }
    }

    /// Appends the page to `out` and starts the next one.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.filled > 0 {
            self.close_block();
        }
        for number in [BLOCK_LEN as u64, (BLOCK_LEN / MINIBLOCK_LEN) as u64, self.count] {
            varint(number, out);
        }
        varint(zigzag(self.first.unwrap_or(0)), out);
        out.append(&mut self.packed);
        (self.first, self.count) = (None, 0);
    }

    fn close_block(&mut self) {
        let filled = std::mem::take(&mut self.filled);
        let least = least(&self.block[..filled]);
        varint(zigzag(least), &mut self.packed);
        let widths = self.packed.len();
        self.packed.resize(widths + BLOCK_LEN / MINIBLOCK_LEN, 0);
        for (number, start) in (0..filled).step_by(MINIBLOCK_LEN).enumerate() {
            let end = filled.min(start + MINIBLOCK_LEN);
            let mut above = [0; MINIBLOCK_LEN];
            for (above, difference) in above.iter_mut().zip(&self.block[start..end]) {
                *above = difference.wrapping_sub(least) as u64;
            }
            let bits = above.iter().fold(0, |bits, above| bits | above);
            let width = (u64::BITS - bits.leading_zeros()) as usize;
            self.packed[widths + number] = width as u8;
            let mut words = [0; MINIBLOCK_LEN];
            pack(&above, width, &mut words);
            self.packed.reserve(size_of::<u64>() * width);
            for word in &words[..width] {
                self.packed.extend_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// Appends a number in groups of seven bits, lowest first (ULEB128).
pub(super) fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Maps small numbers of either sign to small unsigned numbers.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn least(differences: &[i64]) -> i64 {
    const HALF: i64 = 1 << 31;
    let bits = differences.iter().fold(0, |bits, one| bits | one.wrapping_add(HALF));
    // 32-bit values are compared several at a time (SIMD).
    if (0..2 * HALF).contains(&bits) {
        return differences.iter().map(|one| *one as i32).min().unwrap_or(0).into();
    }
    differences.iter().copied().min().unwrap_or(0)
}

/// Packs numbers of `width` bits into `width` words, from the lowest bit.
fn pack(numbers: &[u64; MINIBLOCK_LEN], width: usize, words: &mut [u64; MINIBLOCK_LEN]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                $($width => packed::<$width>(numbers, words),)*
                _ => {}
            }
        };
    }
    by_width!(
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62
        63 64
    );
}

/// Packs with a width known at compile time, so that all shifts are constant.
fn packed<const WIDTH: usize>(numbers: &[u64; MINIBLOCK_LEN], words: &mut [u64; MINIBLOCK_LEN]) {
    let mut word = 0;
    macro_rules! each {
        ($($place:literal)*) => {$(
            let (number, start) = (numbers[$place], $place * WIDTH % 64);
            word |= number << start;
            if start + WIDTH >= 64 {
                words[$place * WIDTH / 64] = word;
                word = if start + WIDTH > 64 { number >> (64 - start) } else { 0 };
            }
        )*};
    }
    each!(
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61
        62 63
    );
    let _ = word;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_page_matches_the_specification() {
        let mut differences = DeltaEncoder::new();
        differences.push(&[7]);
        differences.push(&[5, 3, 1, 2, 3, 4, 5]);
        let mut page = Vec::new();
        differences.finish(&mut page);
        // The example in the format specification: differences -2 -2 -2 1 1 1 1 with minimum -2,
        // stored as 0 0 0 3 3 3 3 in two bits each.
        let mut expected = vec![0x80, 0x02, 4, 8, 14, 3, 2, 0, 0, 0, 0b1100_0000, 0b0011_1111];
        expected.resize(10 + 2 * MINIBLOCK_LEN / 8, 0);
        assert_eq!(page, expected);
        let mut empty = Vec::new();
        differences.finish(&mut empty);
        assert_eq!(empty, [0x80, 0x02, 4, 0, 0], "no data of the previous page is left");
    }

    #[test]
    fn packing_starts_at_the_lowest_bit_for_every_width() {
        for width in 1..=64 {
            let number = |place: u64| place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - width);
            let numbers: [u64; MINIBLOCK_LEN] =
                std::array::from_fn(|place| number(place as u64 + 1));
            let mut words = [0; MINIBLOCK_LEN];
            pack(&numbers, width, &mut words);
            for (place, number) in numbers.iter().enumerate() {
                let bit = |bit: usize| {
                    words[(place * width + bit) / 64] >> ((place * width + bit) % 64) & 1
                };
                let unpacked = (0..width).fold(0, |all, at| all | bit(at) << at);
                assert_eq!(unpacked, *number, "{place} of {width} bits");
            }
        }
    }
}
