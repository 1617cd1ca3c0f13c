//! Token ids, grids → positions on three axes.

use super::patches::Grid;

/// A token's position in time, height and width.
pub type Position = [u32; 3];

/// A picture's visual tokens in a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSlots {
    /// The index of the first.
    pub start: usize,
    /// Where they stand in the picture; they are `grid.tokens()`, row by row.
    pub grid: Grid,
}

/// The positions of `tokens` tokens among which are `images`, in ascending order and without overlap.
///
/// A text token advances all three axes by one. The tokens of a picture share their time and spread over height and width
/// from the position reached; after it the position has advanced by the longer side (`get_rope_index`). The second value
/// is the position of the next token.
#[must_use]
pub fn positions(tokens: usize, images: &[ImageSlots]) -> (Vec<Position>, u32) {
    let mut positions = Vec::with_capacity(tokens);
    let mut next = 0;
    let text = |positions: &mut Vec<Position>, next: &mut u32, end: usize| {
        while positions.len() < end {
            positions.push([*next; 3]);
            *next += 1;
        }
    };
    for image in images {
        text(&mut positions, &mut next, image.start);
        let (height, width) = image.grid.merged();
        for row in 0..height as u32 {
            positions.extend((0..width as u32).map(|column| [next, next + row, next + column]));
        }
        next += height.max(width) as u32;
    }
    text(&mut positions, &mut next, tokens);
    (positions, next)
}

/// Which axis and frequency each pair of a head's channels turns with: height and width take every third pair as long as
/// their sections last, time has the rest.
#[must_use]
pub fn interleave(frequencies: &[f32], section: [usize; 3]) -> Vec<(usize, f32)> {
    let axis = |i: usize| match i % 3 {
        axis @ (1 | 2) if i / 3 < section[axis] => axis,
        _ => 0,
    };
    frequencies.iter().enumerate().map(|(i, &frequency)| (axis(i), frequency)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_advances_every_axis() {
        assert_eq!(positions(3, &[]), (vec![[0; 3], [1; 3], [2; 3]], 3));
    }

    #[test]
    fn a_picture_spreads_over_height_and_width_and_advances_by_its_longer_side() {
        let grid = Grid { height: 4, width: 6, merge: 2 };
        let (found, next) = positions(8, &[ImageSlots { start: 1, grid }]);
        let picture = [[1, 1, 1], [1, 1, 2], [1, 1, 3], [1, 2, 1], [1, 2, 2], [1, 2, 3]];
        assert_eq!(found, [&[[0; 3]], &picture[..], &[[4; 3]]].concat());
        assert_eq!(next, 5);
    }

    #[test]
    fn pictures_may_touch() {
        let grid = Grid { height: 2, width: 4, merge: 2 };
        let images = [ImageSlots { start: 0, grid }, ImageSlots { start: 2, grid }];
        assert_eq!(positions(4, &images), (vec![[0, 0, 0], [0, 0, 1], [2, 2, 2], [2, 2, 3]], 4));
    }

    #[test]
    fn sections_end_before_the_pairs_do() {
        let axes: Vec<usize> = interleave(&[0.0; 10], [6, 2, 1]).iter().map(|&(axis, _)| axis).collect();
        assert_eq!(axes, [0, 1, 2, 0, 1, 0, 0, 0, 0, 0]);
        let published = interleave(&[0.0; 64], [24, 20, 20]);
        let count = |axis| published.iter().filter(|(a, _)| *a == axis).count();
        assert_eq!([count(0), count(1), count(2)], [24, 20, 20]);
    }
}
