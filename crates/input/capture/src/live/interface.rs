//! Looks up a network interface of the kernel.

use crate::live_error::LiveError;
use crate::system;

#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub name: String,
    /// Interface index.
    pub index: u32,
    /// Hardware type (`ARPHRD_...`).
    pub hardware_type: u16,
}

impl Interface {
    /// Looks an interface up.
    ///
    /// # Errors
    /// It does not exist.
    pub fn find(name: &str) -> Result<Self, LiveError> {
        let Some(index) = system::interface_index(name) else {
            return Err(LiveError::NoInterface(name.into(), system::interface_names()));
        };
        let hardware_type = system::hardware_type(name).map_err(LiveError::query(name))?;
        Ok(Self { name: name.into(), index, hardware_type })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_interface_is_refused_with_the_existing_ones() {
        let error = Interface::find("weir-none").unwrap_err().to_string();
        assert!(error.starts_with("there is no interface 'weir-none'; there are: "), "{error}");
        assert!(error.contains("lo"), "{error}");
        // Longer than a name can be, and empty.
        assert!(Interface::find("a-name-that-is-longer-than-any").is_err());
        assert!(Interface::find("").is_err());
        assert_eq!(Interface::find("lo").unwrap().hardware_type, libc::ARPHRD_LOOPBACK);
    }
}
