//! Large pictures in overlapping tiles, blended over the overlap.
//!
//! Tiles are 256 pixels a side, 192 apart. Each is first blended downwards with the finished tile above, then rightwards
//! with the finished tile on its left: a tile's edge already carries its own blending when its neighbours take it up. As
//! only edges are taken up, only the bottom edges of one row of tiles and the right edge of one tile are kept.

use crate::Result;

/// Whether the VAE works on the whole picture or on tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tiling {
    /// The whole picture at once.
    Off,
    /// Tiles, when a side is longer than one tile.
    On,
}

/// Side of a tile in pixels.
pub(super) const TILE: usize = 256;
/// Distance between tiles in pixels.
pub(super) const STRIDE: usize = 192;

/// A tiling of `height` x `width` cells (latents); all lengths in cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    pub(super) height: usize,
    pub(super) width: usize,
    /// Side of a tile.
    pub(super) tile: usize,
    /// Distance between tiles.
    pub(super) stride: usize,
    /// Values a side that the result has for each cell.
    pub(super) scale: usize,
}

/// A part of the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) top: usize,
    pub(super) left: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// Values `[channels, height, width]` on the host.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Plane {
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) values: Vec<f32>,
}

impl Grid {
    /// The tiling of a picture whose latents are `scale` pixels wide. The result has `result_scale` values a side per latent.
    pub(super) fn new(height: usize, width: usize, scale: usize, result_scale: usize) -> Self {
        Self { height, width, tile: TILE / scale, stride: STRIDE / scale, scale: result_scale }
    }

    /// Whether one tile holds everything.
    pub(super) fn is_single(&self) -> bool {
        self.height <= self.tile && self.width <= self.tile
    }

    /// Tiles in all.
    pub(super) fn tiles(&self) -> usize {
        self.height.div_ceil(self.stride) * self.width.div_ceil(self.stride)
    }

    /// Runs `tile` on every window, row by row, and assembles the blended result.
    ///
    /// # Errors
    /// The first error of `tile`.
    pub(super) fn run(&self, channels: usize, mut tile: impl FnMut(Window) -> Result<Plane>) -> Result<Plane> {
        let mut result = Plane::zeros(channels, self.height * self.scale, self.width * self.scale);
        let blend = (self.tile - self.stride) * self.scale;
        let crop = self.stride * self.scale;
        let mut above: Vec<Plane> = Vec::new();
        for top in (0..self.height).step_by(self.stride) {
            let height = self.tile.min(self.height - top);
            let mut bottoms = Vec::new();
            let mut left_edge: Option<Plane> = None;
            for (column, left) in (0..self.width).step_by(self.stride).enumerate() {
                let width = self.tile.min(self.width - left);
                let mut plane = tile(Window { top, left, height, width })?;
                if let Some(above) = above.get(column) {
                    plane.blend_from_above(above, blend);
                }
                if let Some(edge) = &left_edge {
                    plane.blend_from_left(edge, blend);
                }
                result.paste(&plane, top * self.scale, left * self.scale, crop);
                let (rows, columns) = (plane.height.min(blend), plane.width.min(blend));
                bottoms.push(plane.cut(plane.height - rows, 0, rows, plane.width));
                left_edge = Some(plane.cut(0, plane.width - columns, plane.height, columns));
            }
            above = bottoms;
        }
        Ok(result)
    }
}

impl Plane {
    pub(super) fn zeros(channels: usize, height: usize, width: usize) -> Self {
        Self { channels, height, width, values: vec![0.0; channels * height * width] }
    }

    /// A rectangle of it.
    pub(super) fn cut(&self, top: usize, left: usize, height: usize, width: usize) -> Self {
        let mut values = Vec::with_capacity(self.channels * height * width);
        for channel in 0..self.channels {
            for row in top..top + height {
                let start = self.row(channel, row) + left;
                values.extend_from_slice(&self.values[start..start + width]);
            }
        }
        Self { channels: self.channels, height, width, values }
    }

    /// Copies at most `limit` x `limit` values of `from` to `top`, `left`.
    fn paste(&mut self, from: &Self, top: usize, left: usize, limit: usize) {
        let width = from.width.min(limit);
        for channel in 0..self.channels {
            for row in 0..from.height.min(limit) {
                let (to, start) = (self.row(channel, top + row) + left, from.row(channel, row));
                self.values[to..to + width].copy_from_slice(&from.values[start..start + width]);
            }
        }
    }

    /// Fades from the last rows of `above` into the first rows of this plane.
    fn blend_from_above(&mut self, above: &Self, extent: usize) {
        let extent = extent.min(above.height).min(self.height);
        for channel in 0..self.channels {
            for y in 0..extent {
                let (old, new) = weights(y, extent);
                let from = above.row(channel, above.height - extent + y);
                let to = self.row(channel, y);
                let width = self.width.min(above.width);
                for (b, a) in self.values[to..to + width].iter_mut().zip(&above.values[from..from + width]) {
                    *b = a * old + *b * new;
                }
            }
        }
    }

    /// Fades from the last columns of `left` into the first columns of this plane.
    fn blend_from_left(&mut self, left: &Self, extent: usize) {
        let extent = extent.min(left.width).min(self.width);
        for channel in 0..self.channels {
            for row in 0..self.height {
                let from = left.row(channel, row) + left.width - extent;
                let to = self.row(channel, row);
                for x in 0..extent {
                    let (old, new) = weights(x, extent);
                    let b = &mut self.values[to + x];
                    *b = left.values[from + x] * old + *b * new;
                }
            }
        }
    }

    fn row(&self, channel: usize, row: usize) -> usize {
        (channel * self.height + row) * self.width
    }
}

/// Weights of the old and the new tile at step `i` of `extent`: computed in `f64`, applied in `f32`, as the reference does.
fn weights(i: usize, extent: usize) -> (f32, f32) {
    let new = i as f64 / extent as f64;
    ((1.0 - new) as f32, new as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(window: Window, scale: usize, value: f32) -> Plane {
        let (height, width) = (window.height * scale, window.width * scale);
        Plane { channels: 1, height, width, values: vec![value; height * width] }
    }

    #[test]
    fn equal_tiles_give_a_seamless_result() {
        for (height, width) in [(16, 16), (17, 5), (25, 40), (12, 13)] {
            let grid = Grid::new(height, width, 16, 2);
            let mut windows = Vec::new();
            let plane = grid
                .run(1, |window| {
                    windows.push(window);
                    Ok(constant(window, 2, 0.75))
                })
                .unwrap();
            assert_eq!((plane.height, plane.width), (2 * height, 2 * width));
            assert!(plane.values.iter().all(|v| (v - 0.75).abs() < 1e-6));
            assert_eq!(windows.len(), grid.tiles());
        }
    }

    #[test]
    fn blending_takes_up_the_blended_neighbour() {
        // Tiles of three cells, one apart, one row: each contributes its first cell.
        let grid = Grid { height: 1, width: 3, tile: 3, stride: 1, scale: 1 };
        let mut value = 0.0;
        let plane = grid
            .run(1, |window| {
                value += 1.0;
                Ok(constant(window, 1, value))
            })
            .unwrap();
        // Tile 2 becomes (1, 1.5); tile 3 starts from its last cell, which is 2 only before blending.
        assert_eq!(plane.values, [1.0, 1.0, 1.5]);
    }
}
