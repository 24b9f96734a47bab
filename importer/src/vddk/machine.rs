//! The virtual machine: its disk, its snapshots, and which areas have changed between two of them.

use std::ops::Range;

use super::soap::{Moref, Soap, argument};
use super::xml::Node;
use crate::error::Error;

/// Backing files below each other that are examined.
const CHAIN_MAX: usize = 25;
const SNAPSHOTS_MAX: usize = 1000;
/// Changed areas, neighbours merged, that are believed.
const AREAS_MAX: usize = 1 << 20;

pub(super) struct Machine<'a> {
    soap: &'a Soap,
    pub(super) moref: Moref,
}

/// A disk of it, now or in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    /// The same in every snapshot.
    pub(super) key: String,
    pub(super) capacity: u64,
    pub(super) file: String,
    /// Names the state, where changes are tracked.
    change_id: Option<String>,
    parents: Vec<String>,
}

impl Disk {
    fn from_device(device: &Node) -> Option<Self> {
        let backing = device.child("backing")?;
        let below =
            std::iter::successors(backing.child("parent"), |backing| backing.child("parent"));
        let parents = below.take(CHAIN_MAX).filter_map(|backing| backing.text_of("fileName"));
        let kib = || device.number("capacityInKB")?.checked_mul(1024);
        Some(Self {
            key: device.text_of("key")?.to_owned(),
            capacity: device.number("capacityInBytes").or_else(kib)?,
            file: backing.text_of("fileName")?.to_owned(),
            change_id: backing.text_of("changeId").map(str::to_owned),
            parents: parents.map(str::to_owned).collect(),
        })
    }
}

impl<'a> Machine<'a> {
    /// By the UUID of the instance, or else of its BIOS.
    pub(super) fn find(soap: &'a Soap, uuid: &str) -> Result<Self, Error> {
        for instance in ["true", "false"] {
            let arguments = argument("uuid", uuid)
                + &argument("vmSearch", "true")
                + &argument("instanceUuid", instance);
            let answer = soap.call("FindByUuid", &soap.services.search, &arguments)?;
            if let Some(found) = answer.child("returnval") {
                let moref = Moref::new("VirtualMachine", found.text.trim());
                return Ok(Self { soap, moref });
            }
        }
        Err(soap.refused(format!("there is no virtual machine {uuid}")))
    }

    /// The disk that has the file `wanted`: now, in a snapshot, or below.
    pub(super) fn disk(&self, wanted: &str) -> Result<Disk, Error> {
        let now = self.disks_of(&self.moref)?;
        if let Some(disk) = now.iter().find(|disk| disk.file == wanted) {
            return Ok(disk.clone());
        }
        for snapshot in self.snapshots()? {
            let found = self.disks_of(&snapshot)?.into_iter().find(|disk| disk.file == wanted);
            if let Some(disk) = found {
                return Ok(disk);
            }
        }
        let below = now.into_iter().find(|disk| disk.parents.iter().any(|file| file == wanted));
        below.ok_or_else(|| self.soap.refused(format!("the machine has no disk {wanted:?}")))
    }

    /// The same disk as it was in a snapshot.
    pub(super) fn disk_in(&self, snapshot: &Moref, disk: &Disk) -> Result<Disk, Error> {
        let found = self.disks_of(snapshot)?.into_iter().find(|then| then.key == disk.key);
        found.ok_or_else(|| {
            self.soap.refused(format!("the snapshot {} does not have the disk", snapshot.id))
        })
    }

    /// The snapshot with that name of the interface: `snapshot-12`.
    pub(super) fn snapshot(&self, id: &str) -> Result<Moref, Error> {
        let found = self.snapshots()?.into_iter().find(|snapshot| snapshot.id == id);
        found.ok_or_else(|| self.soap.refused(format!("the machine has no snapshot {id:?}")))
    }

    /// What has changed in the disk of `current` since `previous`: a change id, or another snapshot.
    pub(super) fn changes(
        &self,
        disk: &Disk,
        current: &Moref,
        previous: &str,
    ) -> Result<Vec<Range<u64>>, Error> {
        let since = if previous.contains('/') {
            previous.to_owned() // as in `52 de c0 d9…/7`
        } else {
            let then = self.disk_in(&self.snapshot(previous)?, disk)?;
            then.change_id.ok_or_else(|| {
                let because = "tracking of changed blocks is not enabled for it";
                self.soap.refused(format!("the snapshot {previous:?} is of no use: {because}"))
            })?
        };
        let mut areas: Vec<Range<u64>> = vec![];
        let mut at = 0;
        while at < disk.capacity {
            let arguments = current.argument("snapshot")
                + &argument("deviceKey", &disk.key)
                + &argument("startOffset", &at.to_string())
                + &argument("changeId", &since);
            let answer = self.soap.call("QueryChangedDiskAreas", &self.moref, &arguments)?;
            let nonsense = |what: &str| {
                self.soap.nonsense(format!("its changed areas make no sense at byte {at}: {what}"))
            };
            let answer = answer.child("returnval").ok_or_else(|| nonsense("there are none"))?;
            let begin = answer.number("startOffset").unwrap_or(at);
            let end = answer.number("length").and_then(|length| begin.checked_add(length));
            let end = end.filter(|end| begin <= at && *end > at && *end <= disk.capacity);
            let end = end.ok_or_else(|| nonsense("they are of another part"))?;
            for area in answer.all("changedArea") {
                let start = area.number("start");
                let range = start.zip(area.number("length")).and_then(|(start, length)| {
                    Some(start..start.checked_add(length)?).filter(|range| range.end <= end)
                });
                let range = range.ok_or_else(|| nonsense("one is outside"))?;
                if areas.len() == AREAS_MAX {
                    return Err(nonsense("there are too many"));
                }
                match areas.last_mut() {
                    Some(last) if range.start < last.end => return Err(nonsense("they overlap")),
                    Some(last) if range.start == last.end => last.end = range.end,
                    _ if range.is_empty() => {}
                    _ => areas.push(range),
                }
            }
            at = end;
        }
        Ok(areas)
    }

    fn disks_of(&self, of: &Moref) -> Result<Vec<Disk>, Error> {
        let devices = self.soap.property(of, "config.hardware.device")?.unwrap_or_default();
        let disks = devices.children.iter().filter(|device| device.kind == "VirtualDisk");
        Ok(disks.filter_map(Disk::from_device).collect())
    }

    fn snapshots(&self) -> Result<Vec<Moref>, Error> {
        let tree = self.soap.property(&self.moref, "snapshot")?.unwrap_or_default();
        let mut found = vec![];
        let mut waiting: Vec<&Node> = tree.all("rootSnapshotList").collect();
        while let Some(node) = waiting.pop() {
            if let Some(id) = node.text_of("snapshot").filter(|_| found.len() < SNAPSHOTS_MAX) {
                found.push(Moref::new("VirtualMachineSnapshot", id));
            }
            waiting.extend(node.all("childSnapshotList"));
        }
        Ok(found)
    }
}
