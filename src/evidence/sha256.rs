//! SHA-256 (FIPS 180-4 §6.2) of two texts at once. The rounds of one text wait for each other most of the time; those of another
//! one fit between them.

#![expect(clippy::many_single_char_names, reason = "the standard's names of the working variables")]

/// The state before the first block (§5.3.3).
pub const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// A text in progress, and blocks of it.
pub type Part<'a> = (&'a mut [u32; 8], &'a [[u8; 64]]);

/// Takes the blocks of two texts into their states.
pub fn compress((a, x): Part<'_>, (b, y): Part<'_>) {
    let both = x.len().min(y.len());
    let ((x, x_rest), (y, y_rest)) = (x.split_at(both), y.split_at(both));
    two(a, x, b, y);
    sha2::block_api::compress256(a, x_rest);
    sha2::block_api::compress256(b, y_rest);
}

#[cfg(target_arch = "x86_64")]
fn two(a: &mut [u32; 8], x: &[[u8; 64]], b: &mut [u32; 8], y: &[[u8; 64]]) {
    if is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1") {
        // SAFETY: the processor has what the function needs.
        unsafe { x86::compress([a, b], [x, y]) }
    } else {
        sha2::block_api::compress256(a, x);
        sha2::block_api::compress256(b, y);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn two(a: &mut [u32; 8], x: &[[u8; 64]], b: &mut [u32; 8], y: &[[u8; 64]]) {
    sha2::block_api::compress256(a, x);
    sha2::block_api::compress256(b, y);
}

/// By the SHA extensions, whose registers hold a state as ABEF and CDGH (Intel SDM, SHA256RNDS2).
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_loadu_si128, _mm_set_epi64x, _mm_sha256msg1_epu32,
        _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8, _mm_shuffle_epi32, _mm_storeu_si128,
    };

    /// The round constants of FIPS 180-4 §4.2.2.
    static K: [[u32; 4]; 16] = [
        [0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5],
        [0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5],
        [0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3],
        [0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174],
        [0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc],
        [0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da],
        [0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7],
        [0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967],
        [0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13],
        [0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85],
        [0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3],
        [0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070],
        [0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5],
        [0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3],
        [0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208],
        [0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2],
    ];

    #[target_feature(enable = "sha,sse4.1")]
    pub(super) fn compress([a, b]: [&mut [u32; 8]; 2], [x, y]: [&[[u8; 64]]; 2]) {
        // Every loop here must come out unrolled: adapters of iterators do not, in a function with features of its own.
        let ([mut a0, mut a1], [mut b0, mut b1]) = (load(a), load(b));
        for n in 0..x.len().min(y.len()) {
            let before = (a0, a1, b0, b1);
            let (mut v, mut w) = (words_of(&x[n]), words_of(&y[n]));
            let mut round = 0;
            while round < 16 {
                let k = quarter(&K[round]);
                four_rounds(&mut a0, &mut a1, &mut v, round, k);
                four_rounds(&mut b0, &mut b1, &mut w, round, k);
                round += 1;
            }
            a0 = _mm_add_epi32(a0, before.0);
            a1 = _mm_add_epi32(a1, before.1);
            b0 = _mm_add_epi32(b0, before.2);
            b1 = _mm_add_epi32(b1, before.3);
        }
        store(a, [a0, a1]);
        store(b, [b0, b1]);
    }

    #[inline]
    #[target_feature(enable = "sha,sse4.1")]
    fn four_rounds(abef: &mut __m128i, cdgh: &mut __m128i, w: &mut [__m128i; 4], round: usize, k: __m128i) {
        let at = round % 4;
        if round >= 4 {
            let last = w[(round + 3) % 4];
            let new = _mm_sha256msg1_epu32(w[at], w[(round + 1) % 4]);
            let new = _mm_add_epi32(new, _mm_alignr_epi8(last, w[(round + 2) % 4], 4));
            w[at] = _mm_sha256msg2_epu32(new, last);
        }
        let words = _mm_add_epi32(w[at], k);
        *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, words);
        *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(words, 0x0e));
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn words_of(block: &[u8; 64]) -> [__m128i; 4] {
        let big_endian = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
        let (quarters, _) = block.as_chunks::<16>();
        [
            _mm_shuffle_epi8(loaded(&quarters[0]), big_endian),
            _mm_shuffle_epi8(loaded(&quarters[1]), big_endian),
            _mm_shuffle_epi8(loaded(&quarters[2]), big_endian),
            _mm_shuffle_epi8(loaded(&quarters[3]), big_endian),
        ]
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn loaded(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: sixteen bytes are read of an array of sixteen; their alignment does not matter.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn quarter(words: &[u32; 4]) -> __m128i {
        // SAFETY: sixteen bytes are read of an array of sixteen.
        unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn load(&[a, b, c, d, e, f, g, h]: &[u32; 8]) -> [__m128i; 2] {
        [quarter(&[f, e, b, a]), quarter(&[h, g, d, c])]
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn store(state: &mut [u32; 8], [abef, cdgh]: [__m128i; 2]) {
        let (mut feba, mut hgdc) = ([0u32; 4], [0u32; 4]);
        // SAFETY: sixteen bytes each are written to arrays of sixteen.
        unsafe {
            _mm_storeu_si128(feba.as_mut_ptr().cast(), abef);
            _mm_storeu_si128(hgdc.as_mut_ptr().cast(), cdgh);
        }
        let ([f, e, b, a], [h, g, d, c]) = (feba, hgdc);
        *state = [a, b, c, d, e, f, g, h];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_at_once_are_as_one_after_the_other() {
        let block = |seed: u8| std::array::from_fn(|n| (n as u8).wrapping_mul(seed).wrapping_add(seed));
        for (x, y) in [(0, 0), (1, 1), (7, 7), (0, 3), (5, 2), (2, 9)] {
            let x: Vec<[u8; 64]> = (0..x).map(|n| block(n + 3)).collect();
            let y: Vec<[u8; 64]> = (0..y).map(|n| block(n + 101)).collect();
            let (mut a, mut b) = (INITIAL, INITIAL.map(u32::reverse_bits));
            let (mut one, mut other) = (a, b);
            compress((&mut a, &x), (&mut b, &y));
            sha2::block_api::compress256(&mut one, &x);
            sha2::block_api::compress256(&mut other, &y);
            assert_eq!((a, b), (one, other));
        }
    }
}
