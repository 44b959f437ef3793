//! Small numbers as runs of equal values, bit-packed where runs are short: Parquet's
//! RLE/bit-packing hybrid encoding.

use super::delta::varint;

/// Numbers examined together.
const UNIT: usize = 64;

/// The numbers of one page.
#[derive(Debug)]
pub(super) struct Runs {
    width: usize,
    unit: [u8; UNIT],
    filled: usize,
    open: Open,
    out: Vec<u8>,
}

/// A run that may still grow.
#[derive(Debug)]
enum Open {
    Alike { number: u8, count: u64 },
    Packed(Vec<u8>),
}

impl Runs {
    /// `width` is the number of bits per value, 1 to 8.
    pub(super) fn new(width: usize) -> Self {
        let open = Open::Alike { number: 0, count: 0 };
        Self { width, unit: [0; UNIT], filled: 0, open, out: Vec::new() }
    }

    /// Appends numbers.
    pub(super) fn push(&mut self, numbers: impl ExactSizeIterator<Item = u8>) {
        let mut numbers = numbers;
        while numbers.len() > 0 {
            let here = numbers.len().min(UNIT - self.filled);
            for (to, number) in self.unit[self.filled..].iter_mut().zip(numbers.by_ref().take(here))
            {
                *to = number;
            }
            self.filled += here;
            if self.filled == UNIT {
                self.close_unit();
            }
        }
    }

    /// Appends `number` `count` times.
    pub(super) fn repeat(&mut self, number: u8, count: usize) {
        let before = count.min((UNIT - self.filled) % UNIT);
        self.push(std::iter::repeat_n(number, before));
        let left = count - before;
        if left >= UNIT {
            self.alike(number, left - left % UNIT);
        }
        self.push(std::iter::repeat_n(number, left % UNIT));
    }

    /// Appends the page to `out` and starts the next one.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.filled > 0 {
            self.close_unit();
        }
        self.close_run();
        out.append(&mut self.out);
    }

    fn close_unit(&mut self) {
        let filled = std::mem::take(&mut self.filled);
        let first = self.unit[0];
        if self.unit[..filled].iter().fold(0, |other, number| other | (number ^ first)) == 0 {
            self.alike(first, filled);
            return;
        }
        self.unit[filled..].fill(0);
        if matches!(self.open, Open::Alike { .. }) {
            self.close_run();
            self.open = Open::Packed(Vec::new());
        }
        let Open::Packed(packed) = &mut self.open else { return };
        for eight in self.unit[..filled.next_multiple_of(8)].chunks_exact(8) {
            let bits = eight
                .iter()
                .rev()
                .fold(0_u64, |bits, number| bits << self.width | u64::from(*number));
            packed.extend_from_slice(&bits.to_le_bytes()[..self.width]);
        }
    }

    fn alike(&mut self, number: u8, more: usize) {
        match &mut self.open {
            Open::Alike { number: known, count } if *known == number => *count += more as u64,
            _ => {
                self.close_run();
                self.open = Open::Alike { number, count: more as u64 };
            }
        }
    }

    fn close_run(&mut self) {
        match std::mem::replace(&mut self.open, Open::Alike { number: 0, count: 0 }) {
            Open::Alike { count: 0, .. } => {}
            Open::Alike { number, count } => {
                varint(count << 1, &mut self.out);
                self.out.push(number);
            }
            Open::Packed(packed) => {
                varint((packed.len() / self.width) as u64 * 2 + 1, &mut self.out);
                self.out.extend_from_slice(&packed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(fill: impl Fn(&mut Runs)) -> Vec<u8> {
        let mut runs = Runs::new(3);
        let mut page = Vec::new();
        // A page must not leave data in the next one.
        for _ in 0..2 {
            page.clear();
            fill(&mut runs);
            runs.finish(&mut page);
        }
        page
    }

    #[test]
    fn the_same_number_again_and_again_takes_two_or_three_bytes_however_it_comes() {
        let run = [0x90, 3, 4];
        assert_eq!(page(|runs| runs.repeat(4, 200)), run);
        assert_eq!(page(|runs| (0..200).for_each(|_| runs.repeat(4, 1))), run);
        assert_eq!(page(|runs| runs.push(std::iter::repeat_n(4, 200))), run);
    }

    #[test]
    fn a_unit_of_different_numbers_is_packed_between_the_runs() {
        let mixed: Vec<u8> = (0..64).map(|place| place % 8).collect();
        let packed = page(|runs| {
            runs.repeat(1, 64);
            runs.push(mixed.iter().copied());
            runs.repeat(2, 3);
        });
        let mut expected = vec![0x80, 1, 1, 8 << 1 | 1];
        // The numbers 0 to 7 are the example in the format specification.
        expected.extend([0x88, 0xc6, 0xfa].repeat(8));
        expected.extend([3 << 1, 2]);
        assert_eq!(packed, expected);
    }
}
