// Package libnbd stands in for the binding of libnbd, which no module proxy serves. virt-launcher imports it for incremental
// backups alone, which fail with the error below.
package libnbd

import "errors"

// Names and flags of the NBD protocol and of QEMU.
const (
	CONTEXT_BASE_ALLOCATION   = "base:allocation"
	CONTEXT_QEMU_DIRTY_BITMAP = "qemu:dirty-bitmap:"

	STATE_HOLE  = 1
	STATE_ZERO  = 2
	STATE_DIRTY = 1
)

var errMissing = errors.New("this virt-launcher was built without libnbd")

type (
	// Libnbd is a connection to a server.
	Libnbd struct{}
	// LibnbdExtent is a run of bytes in one state.
	LibnbdExtent struct{ Length, Flags uint64 }
	// ExtentCallback receives the extents of a request.
	ExtentCallback = func(metacontext string, offset uint64, entries []LibnbdExtent, err *int) int
	// BlockStatusOptargs has no fields.
	BlockStatusOptargs struct{}
	// PreadOptargs has no fields.
	PreadOptargs struct{}
)

// Create fails.
func Create() (*Libnbd, error) { return nil, errMissing }

// Close does nothing.
func (*Libnbd) Close() *Libnbd { return nil }

// AddMetaContext fails.
func (*Libnbd) AddMetaContext(string) error { return errMissing }

// CanMetaContext fails.
func (*Libnbd) CanMetaContext(string) (bool, error) { return false, errMissing }

// GetSize fails.
func (*Libnbd) GetSize() (uint64, error) { return 0, errMissing }

// SetExportName fails.
func (*Libnbd) SetExportName(string) error { return errMissing }

// ConnectUnix fails.
func (*Libnbd) ConnectUnix(string) error { return errMissing }

// Pread fails.
func (*Libnbd) Pread([]byte, uint64, *PreadOptargs) error { return errMissing }

// BlockStatus64 fails.
func (*Libnbd) BlockStatus64(uint64, uint64, ExtentCallback, *BlockStatusOptargs) error {
	return errMissing
}
