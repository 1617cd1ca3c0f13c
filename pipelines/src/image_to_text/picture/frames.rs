//! File bytes → whether there is more than one frame, without decoding any.

use image::ImageFormat;

/// Whether a GIF, PNG or WebP file is an animation.
pub(super) fn several(bytes: &[u8], format: ImageFormat) -> bool {
    match format {
        ImageFormat::Gif => gif(bytes).unwrap_or(false),
        ImageFormat::Png => png(bytes).unwrap_or(false),
        ImageFormat::WebP => webp(bytes),
        _ => false,
    }
}

/// The flag of the extended header.
fn webp(bytes: &[u8]) -> bool {
    const ANIMATION: u8 = 2;
    bytes.get(12..16) == Some(b"VP8X") && bytes.get(20).is_some_and(|flags| flags & ANIMATION != 0)
}

/// An `acTL` chunk of more than one frame before the data.
fn png(bytes: &[u8]) -> Option<bool> {
    let mut at = 8;
    loop {
        let length = u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?) as usize;
        match bytes.get(at + 4..at + 8)? {
            b"acTL" => return Some(u32::from_be_bytes(*bytes.get(at + 8..)?.first_chunk()?) > 1),
            b"IDAT" => return Some(false),
            // length, kind and checksum
            _ => at = at.checked_add(length)?.checked_add(12)?,
        }
    }
}

/// A second image descriptor.
fn gif(bytes: &[u8]) -> Option<bool> {
    const EXTENSION: u8 = 0x21;
    const IMAGE: u8 = 0x2c;
    let table = |flags: u8| if flags & 0x80 != 0 { 3 << ((flags & 7) + 1) } else { 0 };
    let mut at = 13 + table(*bytes.get(10)?);
    let mut images = 0;
    loop {
        at += match *bytes.get(at)? {
            EXTENSION => 2,
            IMAGE => {
                images += 1;
                if images == 2 {
                    return Some(true);
                }
                // the descriptor, its colours, and the size of the codes
                10 + table(*bytes.get(at + 9)?) + 1
            }
            _ => return Some(false),
        };
        // blocks of data up to an empty one
        while let length @ 1.. = usize::from(*bytes.get(at)?) {
            at += 1 + length;
        }
        at += 1;
    }
}
