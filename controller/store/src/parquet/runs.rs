//! Small numbers as runs of equal values, bit-packed where runs are short: Parquet's
//! RLE/bit-packing hybrid encoding. Written here for speed: see the parent module.

use super::delta::varint;

/// Numbers examined together.
const UNIT_LEN: usize = 64;

/// The numbers of one page.
#[derive(Debug)]
pub(super) struct RunEncoder {
    width: usize,
    unit: [u8; UNIT_LEN],
    filled: usize,
    open: OpenRun,
    out: Vec<u8>,
}

/// A run that may still grow.
#[derive(Debug)]
enum OpenRun {
    Repeated { number: u8, count: u64 },
    Packed(Vec<u8>),
}

impl RunEncoder {
    /// `width` is the number of bits per value, 1 to 8.
    pub(super) fn new(width: usize) -> Self {
        let open = OpenRun::Repeated { number: 0, count: 0 };
        Self { width, unit: [0; UNIT_LEN], filled: 0, open, out: Vec::new() }
    }

    /// Appends numbers.
    pub(super) fn push(&mut self, numbers: impl ExactSizeIterator<Item = u8>) {
        let mut numbers = numbers;
        while numbers.len() > 0 {
            let here = numbers.len().min(UNIT_LEN - self.filled);
            for (to, number) in self.unit[self.filled..].iter_mut().zip(numbers.by_ref().take(here))
            {
                *to = number;
            }
            self.filled += here;
            if self.filled == UNIT_LEN {
                self.close_unit();
            }
        }
    }

    /// Appends `number` `count` times.
    pub(super) fn repeat(&mut self, number: u8, count: usize) {
        let before = count.min((UNIT_LEN - self.filled) % UNIT_LEN);
        self.push(std::iter::repeat_n(number, before));
        let left = count - before;
        if left >= UNIT_LEN {
            self.push_repeated(number, left - left % UNIT_LEN);
        }
        self.push(std::iter::repeat_n(number, left % UNIT_LEN));
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
            self.push_repeated(first, filled);
            return;
        }
        self.unit[filled..].fill(0);
        if matches!(self.open, OpenRun::Repeated { .. }) {
            self.close_run();
            self.open = OpenRun::Packed(Vec::new());
        }
        let OpenRun::Packed(packed) = &mut self.open else { return };
        for eight in self.unit[..filled.next_multiple_of(8)].chunks_exact(8) {
            let bits = eight
                .iter()
                .rev()
                .fold(0_u64, |bits, number| bits << self.width | u64::from(*number));
            packed.extend_from_slice(&bits.to_le_bytes()[..self.width]);
        }
    }

    fn push_repeated(&mut self, number: u8, more: usize) {
        match &mut self.open {
            OpenRun::Repeated { number: known, count } if *known == number => *count += more as u64,
            _ => {
                self.close_run();
                self.open = OpenRun::Repeated { number, count: more as u64 };
            }
        }
    }

    fn close_run(&mut self) {
        match std::mem::replace(&mut self.open, OpenRun::Repeated { number: 0, count: 0 }) {
            OpenRun::Repeated { count: 0, .. } => {}
            OpenRun::Repeated { number, count } => {
                varint(count << 1, &mut self.out);
                self.out.push(number);
            }
            OpenRun::Packed(packed) => {
                varint((packed.len() / self.width) as u64 * 2 + 1, &mut self.out);
                self.out.extend_from_slice(&packed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(fill: impl Fn(&mut RunEncoder)) -> Vec<u8> {
        let mut runs = RunEncoder::new(3);
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
    fn repeated_number_takes_three_bytes() {
        let run = [0x90, 3, 4];
        assert_eq!(page(|runs| runs.repeat(4, 200)), run);
        assert_eq!(page(|runs| (0..200).for_each(|_| runs.repeat(4, 1))), run);
        assert_eq!(page(|runs| runs.push(std::iter::repeat_n(4, 200))), run);
    }

    #[test]
    fn mixed_unit_is_bit_packed_between_runs() {
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
