//! `ipfix:PATH`: an IPFIX file (RFC 5655).

use super::file::{FIELDS, ROTATE, SinkFile, is_standard_output};
use super::{Destination, SinkKind, WHERE};
use crate::element_selection::select_elements;
use crate::file_output::{FileOutput, check_records, check_rotated};
use crate::ipfix_file::FileTemplates;
use crate::rotation::RotatedName;
use crate::sink::{Error, ExportOptions, Sink};
use crate::template::{TemplateSettings, TemplateSink, Transport};
use std::fs::File;
use std::sync::Arc;
use weir_fields::Format;

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "ipfix",
    place: ":PATH",
    writes: "an IPFIX file (RFC 5655)",
    example: "ipfix:flows.ipfix",
    settings: &[FIELDS, ROTATE, WHERE],
    endings: &["ipfix"],
    view: None,
    parse: |text| {
        let (file, fields) = SinkFile::parse_named("ipfix", text)?;
        let rotated = file.rotation.rotation(&file.path)?;
        let mut templates = TemplateSettings::FILE;
        if let Some(fields) = fields {
            templates.elements.list = select_elements(fields, Format::Ipfix)?;
        }
        Ok(Arc::new(IpfixFile { file, rotated, templates }))
    },
};

#[derive(Debug)]
struct IpfixFile {
    file: SinkFile,
    rotated: Option<RotatedName>,
    templates: TemplateSettings,
}

impl Destination for IpfixFile {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let mut file_templates = FileTemplates::default();
        let mut read = |compression, file: &File, length| file_templates.read_file(compression, file, length);
        let file = FileOutput::open(name, &self.file.path, self.rotated.clone(), options, &mut read)?;
        if file.is_rotated() {
            // These are the templates of files of an earlier run.
            file_templates = FileTemplates::default();
        }
        let transport = Transport::File(file);
        let mut sink = TemplateSink::new(name, Format::Ipfix, self.templates.clone(), transport, options)?;
        sink.begin(file_templates);
        Ok(Box::new(sink))
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        if let Some(rotated) = &self.rotated {
            return check_rotated(name, rotated);
        }
        if is_standard_output(&self.file.path) {
            return Ok(());
        }
        let mut templates = FileTemplates::default();
        check_records(name, self.file.path.as_ref(), &mut |compression, file, length| {
            templates.read_file(compression, file, length)
        })
    }

    fn file(&self) -> Option<&SinkFile> {
        Some(&self.file)
    }
}
