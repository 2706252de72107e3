package proxy

import (
	"bufio"
	"errors"
	"sync"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// body is what an answer from memory holds until its client has read it: the objects of a list, or the objects with which a
// watch begins. [Handler.writeList] writes the body of a list, and [watchStream] that of a watch.
type body struct {
	auditID  string
	envelope *wire.Envelope
	objects  []*index.Object
	// size is the size of the body in bytes before compression. For a watch it is an estimate.
	size int
	// room is the share of --max-inflight-bytes that this body takes: size bytes. The caller of newBody acquires it.
	room limits.Grant

	// The fields of this group are for a list only.

	// head and tail are the bytes of the list before its first item and after its last.
	head, tail []byte
	// indented reports whether the list is written as indented JSON.
	indented bool
}

// bodies keeps bodies for reuse, with their slices of objects.
var bodies = sync.Pool{New: func() any { return new(body) }}

// newBody returns the body of a list or a watch, which must be released. An error means that a list cannot be indented: it
// would become too long (maxIndentGrowth), or it is nested too deeply for a [wire.Indenter].
func newBody(d *decision, auditID string) (*body, error) {
	b := bodies.Get().(*body)
	b.auditID = auditID
	b.envelope = d.state.Envelope
	if d.asked.Watch {
		b.fillWatch(d)
		return b, nil
	}
	b.fillList(d)
	if d.query.Indented {
		if err := b.markIndented(); err != nil {
			b.release()
			return nil, err
		}
	}
	return b, nil
}

// fillList fills an empty body with a list, not indented.
func (b *body) fillList(d *decision) {
	page := d.state.Page(d.query, b.objects) // reuses the slice
	b.objects = page.Objects
	meta := wire.ListMeta{Revision: d.state.Revision}
	if d.query.Shards != nil {
		meta.Shards = d.query.Shards.String()
	}
	if page.Next != "" {
		meta.Continue = policy.EncodeContinue(d.state.Revision, page.Next)
		meta.Remaining = page.Remaining
	}
	itemBytes := b.countItemBytes()
	b.head, b.tail = b.envelope.Frame(meta, len(b.objects), itemBytes)
	b.size = len(b.head) + itemBytes + len(b.tail)
}

// itemHeadSize is a number of bytes in which what stands before an item always fits: a comma in JSON, or a tag (1 byte) and a
// length (up to 10 bytes) in protobuf.
const itemHeadSize = 16

// countItemBytes returns the number of bytes of all objects with their heads ([wire.Envelope.AppendItemHead]).
func (b *body) countItemBytes() int {
	size := 0
	var scratch [itemHeadSize]byte
	for i, o := range b.objects {
		size += len(b.envelope.AppendItemHead(scratch[:0], i, len(o.Bytes))) + len(o.Bytes)
	}
	return size
}

// eventOverhead is the approximate number of bytes of an event without its object.
const eventOverhead = 64

// fillWatch fills an empty body with the objects with which a watch begins. A watch that does not begin with the state has
// none.
func (b *body) fillWatch(d *decision) {
	if d.Initial {
		b.objects = d.state.Page(d.query, b.objects).Objects // reuses the slice
	}
	for _, o := range b.objects {
		b.size += len(o.Bytes) + eventOverhead
	}
}

// parts yields all bytes of a list, in order and not indented. A part is valid only until the next one is yielded.
func (b *body) parts(yield func(part []byte) bool) {
	if !yield(b.head) {
		return
	}
	var scratch [itemHeadSize]byte
	for i, o := range b.objects {
		if !yield(b.envelope.AppendItemHead(scratch[:0], i, len(o.Bytes))) || !yield(o.Bytes) {
			return
		}
	}
	yield(b.tail)
}

const (
	// maxIndentGrowth is the factor by which a list may grow when it is indented: a list of 1 MiB may become 16 MiB. Lists of
	// pods become twice as long, but somebody could make an object of 1 MiB that grows to gigabytes.
	maxIndentGrowth = 16
	// indentAllowance is a length in bytes up to which every list may grow. So a list of 10 KiB may become 1 MiB, and not only
	// 160 KiB.
	indentAllowance = 1 << 20
)

// markIndented marks a list as indented, and sets its size. To find the size, it indents the list once and drops the result.
func (b *body) markIndented() error {
	counter := &limitedCounter{limit: max(indentAllowance, maxIndentGrowth*b.size)}
	if err := writeIndented(bufio.NewWriter(counter), b); err != nil {
		return err
	}
	b.indented = true
	b.size = counter.size
	return nil
}

// limitedCounter counts the bytes that are written to it, and drops them. Beyond the limit, Write returns an error.
type limitedCounter struct{ size, limit int }

// Write implements io.Writer.
func (c *limitedCounter) Write(p []byte) (int, error) {
	c.size += len(p)
	if c.size > c.limit {
		return 0, errors.New("the list grows too much when it is indented")
	}
	return len(p), nil
}

// release gives back the room, and returns the body to the pool.
func (b *body) release() {
	b.room.Release()
	clear(b.objects) // so that the pool keeps no objects in memory
	*b = body{objects: b.objects[:0]}
	bodies.Put(b)
}
