use image::{Rgb, RgbImage};

use super::*;

fn key(number: u8) -> PictureKey {
    PictureKey::of(&super::super::picture::Picture::new(RgbImage::from_pixel(1, 1, Rgb([number; 3]))))
}

fn sequence(ids: &[u32], pictures: &[(usize, u8)]) -> Sequence {
    Sequence { ids: ids.to_vec(), pictures: pictures.iter().map(|&(start, number)| (start, key(number))).collect() }
}

#[test]
fn sequences_share_what_is_equal_in_tokens_and_pictures() {
    let one = sequence(&[1, 9, 9, 2, 9, 9, 3], &[(1, 1), (4, 2)]);
    for (other, common) in [
        (one.clone(), 7),
        (sequence(&[1, 9, 9, 2, 9, 9, 4], &[(1, 1), (4, 2)]), 6),
        (sequence(&[1, 9, 9, 2, 9, 9, 3, 5], &[(1, 1), (4, 2)]), 7),
        (sequence(&[1, 9, 9], &[(1, 1)]), 3),
        (sequence(&[], &[]), 0),
        // Another picture, and none, behind the same tokens.
        (sequence(&[1, 9, 9, 2, 9, 9, 3], &[(1, 1), (4, 3)]), 4),
        (sequence(&[1, 9, 9, 2, 9, 9, 3], &[(1, 3), (4, 2)]), 1),
        (sequence(&[1, 9, 9, 2, 9, 9, 3], &[(1, 1)]), 4),
        (sequence(&[1, 9, 9, 2, 9, 9, 3], &[]), 1),
        // A picture that comes after they part.
        (sequence(&[1, 9, 9, 5, 9, 9], &[(1, 1), (4, 3)]), 3),
    ] {
        assert_eq!((one.common(&other), other.common(&one)), (common, common), "{other:?}");
    }
}
