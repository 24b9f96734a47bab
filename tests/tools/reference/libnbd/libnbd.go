// Package libnbd stands in for the bindings of the C library, which no registry of Go modules has. The reference
// importer asks for them when it copies from VMware, which nobody here does: every call fails.
package libnbd

import "errors"

var errNotHere = errors.New("this build has no libnbd: VMware is not a source")

// Flags of the protocol, as the importer names them.
const (
	CMD_FLAG_REQ_ONE = 1 << 3
	STATE_HOLE       = 1
	STATE_ZERO       = 2
)

// Libnbd is a connection that there never is.
type Libnbd struct{}

// LibnbdError is what closing it could return.
type LibnbdError struct{}

// ExtentCallback is told of a range's extents: pairs of length and flags.
type ExtentCallback func(metacontext string, offset uint64, entries []uint32, err *int) int

// BlockStatusOptargs are the options of BlockStatus.
type BlockStatusOptargs struct {
	Flags    uint32
	FlagsSet bool
}

// PreadOptargs are the options of Pread.
type PreadOptargs struct{}

// Create fails.
func Create() (*Libnbd, error) { return nil, errNotHere }

// AddMetaContext fails.
func (*Libnbd) AddMetaContext(string) error { return errNotHere }

// ConnectUri fails.
func (*Libnbd) ConnectUri(string) error { return errNotHere }

// GetSize fails.
func (*Libnbd) GetSize() (uint64, error) { return 0, errNotHere }

// Pread fails.
func (*Libnbd) Pread([]byte, uint64, *PreadOptargs) error { return errNotHere }

// BlockStatus fails.
func (*Libnbd) BlockStatus(uint64, uint64, ExtentCallback, *BlockStatusOptargs) error {
	return errNotHere
}

// Close has nothing to do.
func (*Libnbd) Close() *LibnbdError { return nil }
