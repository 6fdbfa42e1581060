use super::*;
use proptest::prelude::*;

/// MTH of RFC 9162 §2.1.1, word for word.
fn mth(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::digest([]).into(),
        [one] => *one,
        _ => {
            let k = leaves.len().next_power_of_two() / 2;
            node(&mth(&leaves[..k]), &mth(&leaves[k..]))
        }
    }
}

/// PATH of §2.1.3.1.
fn path(m: usize, leaves: &[Hash]) -> Vec<Hash> {
    if leaves.len() == 1 {
        return Vec::new();
    }
    let k = leaves.len().next_power_of_two() / 2;
    let (mut proof, other) =
        if m < k { (path(m, &leaves[..k]), mth(&leaves[k..])) } else { (path(m - k, &leaves[k..]), mth(&leaves[..k])) };
    proof.push(other);
    proof
}

/// SUBPROOF of §2.1.4.1.
fn subproof(m: usize, leaves: &[Hash], whole: bool) -> Vec<Hash> {
    if m == leaves.len() {
        return if whole { Vec::new() } else { vec![mth(leaves)] };
    }
    let k = leaves.len().next_power_of_two() / 2;
    let (mut proof, other) = if m <= k {
        (subproof(m, &leaves[..k], whole), mth(&leaves[k..]))
    } else {
        (subproof(m - k, &leaves[k..], false), mth(&leaves[..k]))
    };
    proof.push(other);
    proof
}

fn entries(count: usize) -> Vec<Hash> {
    (0..count).map(|n| leaf(&n.to_be_bytes())).collect()
}

fn roots(parts: &[Range<u64>], leaves: &[Hash]) -> Vec<Hash> {
    parts
        .iter()
        .map(|r| leaves[r.start as usize..r.end as usize].iter().copied().collect::<Frontier>().root())
        .collect()
}

#[test]
fn a_growing_tree_has_the_root_of_the_standard_at_every_size() {
    let leaves = entries(200);
    let mut tree = Frontier::default();
    assert_eq!(hex::encode(tree.root()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    for (n, leaf) in leaves.iter().enumerate() {
        tree.push(*leaf);
        assert_eq!((tree.size(), tree.root()), (n as u64 + 1, mth(&leaves[..=n])));
    }
}

#[test]
fn the_tree_of_the_logs_that_run_has_their_hashes() {
    // The test data of Certificate Transparency: RFC 6962's tree, which is RFC 9162's.
    let data: [&[u8]; 8] = [
        b"",
        b"\0",
        b"\x10",
        b"\x20\x21",
        b"\x30\x31",
        b"\x40\x41\x42\x43",
        b"\x50\x51\x52\x53\x54\x55\x56\x57",
        b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
    ];
    let of = |n: usize| hex::encode(data[..n].iter().map(|d| leaf(d)).collect::<Frontier>().root());
    assert_eq!(of(1), "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
    assert_eq!(of(8), "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328");
}

#[test]
fn every_proof_of_small_trees_is_the_standards_and_holds_for_nothing_else() {
    let leaves = entries(40);
    for size in 1..=leaves.len() {
        let (all, root) = (&leaves[..size], mth(&leaves[..size]));
        for (index, entry) in all.iter().enumerate() {
            let proof = roots(&inclusion(index as u64, size as u64).unwrap(), all);
            assert_eq!(proof, path(index, all));
            for at in 0..=size {
                let held = verify_inclusion(entry, at as u64, size as u64, &proof, &root);
                assert_eq!(held.is_ok(), at == index, "{index} at {at} of {size}: {held:?}");
            }
            let longer = [&proof[..], &[root]].concat();
            let length = verify_inclusion(entry, index as u64, size as u64, &longer, &root);
            assert_eq!(length, Err(Refused::Length { found: proof.len() + 1, needed: proof.len() }));
        }
        for earlier in 1..=size {
            let proof = roots(&consistency(earlier as u64, size as u64).unwrap(), all);
            assert_eq!(proof, subproof(earlier, all, true));
            let earlier_root = mth(&leaves[..earlier]);
            let held = |e: usize, r: &Hash| verify_consistency((e as u64, r), (size as u64, &root), &proof);
            assert_eq!(held(earlier, &earlier_root), Ok(()));
            assert!(held(earlier, &leaf(b"another")).is_err());
            for other in (0..=size + 1).filter(|o| *o != earlier) {
                assert!(held(other, &earlier_root).is_err(), "{earlier} as {other} of {size}");
            }
        }
    }
}

#[test]
fn nothing_is_proven_about_no_entries_or_what_is_not_there() {
    let root = Frontier::default().root();
    assert_eq!(verify_inclusion(&root, 0, 0, &[], &root), Err(Refused::OutOfRange { index: 0, size: 0 }));
    assert_eq!(verify_consistency((0, &root), (5, &root), &[]), Err(Refused::Empty));
    assert_eq!(verify_consistency((6, &root), (5, &root), &[]), Err(Refused::OutOfRange { index: 6, size: 5 }));
}

proptest! {
    #[test]
    fn proofs_of_trees_of_any_size_hold_and_are_never_too_long(size in 1..=u64::MAX >> 1, a: u64, b: u64) {
        let (index, earlier) = (a % size, 1 + b % size);
        let parts = inclusion(index, size).unwrap();
        prop_assert!(parts.len() <= MAX_PROOF);
        // They and the leaf are the whole tree.
        prop_assert_eq!(parts.iter().map(|r| r.end - r.start).sum::<u64>() + 1, size);
        prop_assert!(consistency(earlier, size).unwrap().len() <= MAX_PROOF + 1);
    }

    #[test]
    fn a_bit_of_a_proof_that_is_flipped_breaks_it(size in 2..300_usize, a: usize, at: prop::sample::Index, bit in 0..256_usize) {
        let leaves = entries(size);
        let (index, root) = (a % size, mth(&leaves));
        let mut proof = roots(&inclusion(index as u64, size as u64).unwrap(), &leaves);
        prop_assert!(verify_inclusion(&leaves[index], index as u64, size as u64, &proof, &root).is_ok());
        let flipped = at.index(proof.len());
        proof[flipped][bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(verify_inclusion(&leaves[index], index as u64, size as u64, &proof, &root), Err(Refused::OtherRoot));
    }
}
