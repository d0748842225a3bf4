//! numpy's `.npy` files: a header of text, then the values.

/// How long our headers are: what numpy writes for an array of one dimension.
pub const HEADER: usize = 128;

/// The header of an array of `len` values of a type (`<u2`): the bytes that `numpy.save` writes.
pub fn header(descr: &str, len: u64) -> [u8; HEADER] {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({len},), }}");
    // Version 1.0, and the length of what follows.
    let mut header = [b' '; HEADER];
    header[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
    header[8..10].copy_from_slice(&((HEADER - 10) as u16).to_le_bytes());
    header[10..10 + text.len()].copy_from_slice(text.as_bytes());
    header[HEADER - 1] = b'\n';
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_fits() {
        let header = header("<u8", u64::MAX);
        assert!(header.ends_with(b" \n"));
        assert!(String::from_utf8_lossy(&header[10..]).contains("(18446744073709551615,), }  "));
    }
}
