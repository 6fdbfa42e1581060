//! What can have a name.

use super::prepared::Prepared;
use std::{
    fs::{self, File},
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::UnixListener,
    },
    path::Path,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    LinkToFile,
    LinkToDirectory,
    LinkToNothing,
    LinkToItself,
    LinkToDevice,
    HardLink,
    Fifo,
    Socket,
    Directory,
    Giant,
    Garbage,
    Deep,
    Empty,
    OpenToOthers,
    DirectoryOpenToOthers,
    OfAnother,
}

impl Kind {
    pub const ALL: [Self; 16] = [
        Self::LinkToFile,
        Self::LinkToDirectory,
        Self::LinkToNothing,
        Self::LinkToItself,
        Self::LinkToDevice,
        Self::HardLink,
        Self::Fifo,
        Self::Socket,
        Self::Directory,
        Self::Giant,
        Self::Garbage,
        Self::Deep,
        Self::Empty,
        Self::OpenToOthers,
        Self::DirectoryOpenToOthers,
        Self::OfAnother,
    ];

    /// Gives `path` to a thing of this kind, instead of what had it. `false`: this user cannot make one.
    pub fn plant(self, rig: &Prepared, path: &Path) -> bool {
        let kept = fs::read(path).unwrap_or_default();
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(path).unwrap(),
            Ok(_) => fs::remove_file(path).unwrap(),
            Err(_) => fs::create_dir_all(path.parent().unwrap()).unwrap(),
        }
        let mode = |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        match self {
            Self::LinkToFile => symlink(rig.outside.join("key"), path).unwrap(),
            Self::LinkToDirectory => symlink(rig.outside.join("dir"), path).unwrap(),
            Self::LinkToNothing => symlink(rig.outside.join("made"), path).unwrap(),
            Self::LinkToItself => symlink(path, path).unwrap(),
            Self::LinkToDevice => symlink("/dev/zero", path).unwrap(),
            Self::HardLink => fs::hard_link(rig.outside.join("key"), path).unwrap(),
            Self::Fifo => {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            }
            Self::Socket => {
                // Bound by a short name: the path may be longer than a socket's may be.
                let short = rig.root.join("s");
                drop(UnixListener::bind(&short).unwrap());
                fs::rename(short, path).unwrap();
            }
            Self::Directory => fs::create_dir(path).unwrap(),
            Self::Giant => {
                fs::write(path, &kept).unwrap();
                File::options().write(true).open(path).unwrap().set_len(1 << 42).unwrap();
            }
            Self::Garbage => fs::write(path, b"\xff\0{\"v\":1}\n\n[[\"\x1b]0;x\x07".repeat(1000)).unwrap(),
            Self::Deep => fs::write(path, "[".repeat(1 << 20)).unwrap(),
            Self::Empty => fs::write(path, "").unwrap(),
            Self::OpenToOthers => {
                fs::write(path, &kept).unwrap();
                mode(0o666);
            }
            Self::DirectoryOpenToOthers => {
                fs::create_dir(path).unwrap();
                mode(0o777);
            }
            Self::OfAnother => {
                fs::write(path, &kept).unwrap();
                return std::os::unix::fs::chown(path, Some(65534), Some(65534)).is_ok();
            }
        }
        true
    }
}
