package device

// CallKind is a device call that moves memory or waits.
type CallKind uint8

// The calls that a Recorder notes. Queries and events that only mark a place are not noted.
const (
	CallMalloc CallKind = iota
	CallMallocFail
	CallFree
	CallReserve
	CallUnreserve
	CallCreate
	CallCreateFail
	CallRelease
	CallMap
	CallUnmap
	CallWait // an event, a stream or the device was waited for
)

// Call is one noted call. Size is in bytes. Of a wait, Size says what was waited for (WaitedEvent, WaitedStream, WaitedDevice) and Addr
// is the stream.
type Call struct {
	Kind   CallKind
	Addr   Addr
	Size   uint64
	Handle Handle
}

// What a call of kind CallWait waited for.
const (
	WaitedEvent = iota
	WaitedStream
	WaitedDevice
)

// Recorder passes every call on to a device and notes what succeeded or was refused for lack of memory.
type Recorder struct {
	Device
	// Calls are the calls since the last Reset.
	Calls []Call
}

// Reset forgets the calls.
func (r *Recorder) Reset() { r.Calls = r.Calls[:0] }

func (r *Recorder) note(k CallKind, a Addr, size uint64, h Handle) {
	r.Calls = append(r.Calls, Call{k, a, size, h})
}

// Malloc implements Memory.
func (r *Recorder) Malloc(size uint64) (Addr, error) {
	a, err := r.Device.Malloc(size)
	if err == nil {
		r.note(CallMalloc, a, size, 0)
	} else {
		r.note(CallMallocFail, 0, size, 0)
	}
	return a, err
}

// Free implements Memory.
func (r *Recorder) Free(a Addr) error {
	err := r.Device.Free(a)
	if err == nil {
		r.note(CallFree, a, 0, 0)
	}
	return err
}

// Reserve implements Virtual.
func (r *Recorder) Reserve(size uint64) (Addr, error) {
	a, err := r.Device.Reserve(size)
	if err == nil {
		r.note(CallReserve, a, size, 0)
	}
	return a, err
}

// Unreserve implements Virtual.
func (r *Recorder) Unreserve(a Addr, size uint64) error {
	err := r.Device.Unreserve(a, size)
	if err == nil {
		r.note(CallUnreserve, a, size, 0)
	}
	return err
}

// Create implements Virtual.
func (r *Recorder) Create(size uint64) (Handle, error) {
	h, err := r.Device.Create(size)
	if err == nil {
		r.note(CallCreate, 0, size, h)
	} else {
		r.note(CallCreateFail, 0, size, 0)
	}
	return h, err
}

// Release implements Virtual.
func (r *Recorder) Release(h Handle) error {
	err := r.Device.Release(h)
	if err == nil {
		r.note(CallRelease, 0, 0, h)
	}
	return err
}

// Map implements Virtual.
func (r *Recorder) Map(a Addr, size uint64, h Handle) error {
	err := r.Device.Map(a, size, h)
	if err == nil {
		r.note(CallMap, a, size, h)
	}
	return err
}

// Unmap implements Virtual.
func (r *Recorder) Unmap(a Addr, size uint64) error {
	err := r.Device.Unmap(a, size)
	if err == nil {
		r.note(CallUnmap, a, size, 0)
	}
	return err
}

// Wait implements Streams.
func (r *Recorder) Wait(e Event) error {
	r.note(CallWait, 0, WaitedEvent, 0)
	return r.Device.Wait(e)
}

// Sync implements Streams.
func (r *Recorder) Sync(s Stream) error {
	r.note(CallWait, Addr(s), WaitedStream, 0)
	return r.Device.Sync(s)
}

// SyncAll implements Streams.
func (r *Recorder) SyncAll() error {
	r.note(CallWait, 0, WaitedDevice, 0)
	return r.Device.SyncAll()
}
