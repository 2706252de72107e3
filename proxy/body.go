package proxy

import (
	"bufio"
	"errors"
	"net/http"
	"slices"
	"sync"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// An indented list may be maxIndentGrowth times as long as the plain one, and in any case indentAnyway bytes. Lists of
	// pods become twice as long, but somebody could make an object of 1 MiB that grows to gigabytes.
	maxIndentGrowth = 16
	indentAnyway    = 1 << 20
)

// gzipAbove is the size in bytes above which kube-apiserver compresses a body (endpoints/handlers/responsewriters,
// defaultGzipThresholdBytes).
const gzipAbove = 128 * 1024

// objectSlices has slices to fill with the objects of answers, for reuse.
var objectSlices = sync.Pool{New: func() any { return new([]*index.Object) }}

func takeObjects() *[]*index.Object { return objectSlices.Get().(*[]*index.Object) }

// body is the body of a list, ready to be written, or the state with which a watch begins.
type body struct {
	auditID  string // of the answer
	envelope *wire.Envelope
	objects  []*index.Object
	// pooled is the slice from objectSlices that has the objects.
	pooled *[]*index.Object
	// size is the size in bytes before compression. For a watch it is an estimate.
	size int
	// room is the room for size in --max-inflight-bytes. The caller of newBody acquires it.
	room limits.Grant

	// For lists only:

	// head and tail are the bytes before and after the objects.
	head, tail []byte
	indented   bool
	// unindentable reports that the list must be forwarded, since it would become too long when indented, or is nested too
	// deeply for a [wire.Indenter].
	unindentable bool
}

// newBody returns the body of an answer. It must be released.
func newBody(a *answer, auditID string) *body {
	if a.asked.Watch {
		return newInitialState(a, auditID)
	}
	b := &body{auditID: auditID, envelope: a.snapshot.Envelope, pooled: takeObjects(), indented: a.query.Indented}
	page := a.snapshot.Page(a.query, (*b.pooled)[:0])
	b.objects = page.Objects

	meta := wire.ListMeta{Revision: a.snapshot.Revision}
	if a.query.Shards != nil {
		meta.Shards = a.query.Shards.String()
	}
	if page.Next != "" {
		meta.Continue = policy.EncodeContinue(a.snapshot.Revision, page.Next)
		meta.Remaining = page.Remaining
		meta.HasRemaining = page.Counted
	}
	itemBytes := b.itemBytes()
	b.head = b.envelope.AppendHead(nil, meta, len(b.objects), itemBytes)
	b.tail = b.envelope.AppendTail(nil, meta, len(b.objects))
	b.size = len(b.head) + itemBytes + len(b.tail)
	if b.indented {
		b.measureIndented()
	}
	return b
}

// itemBytes returns the number of bytes of the objects and of what separates them.
func (b *body) itemBytes() int {
	size := 0
	var scratch [16]byte
	for i, o := range b.objects {
		size += len(b.envelope.AppendItemHead(scratch[:0], i, len(o.Bytes))) + len(o.Bytes)
	}
	return size
}

// eventOverhead is the approximate number of bytes of an event without its object.
const eventOverhead = 64

// newInitialState returns the state with which a watch begins. It has no objects if the watch begins with the next event.
func newInitialState(a *answer, auditID string) *body {
	b := &body{auditID: auditID, envelope: a.snapshot.Envelope, pooled: takeObjects()}
	b.objects = (*b.pooled)[:0]
	if a.initial {
		b.objects = a.snapshot.Page(a.query, b.objects).Objects
	}
	for _, o := range b.objects {
		b.size += len(o.Bytes) + eventOverhead
	}
	return b
}

// parts yields the bytes of a list, in order. Each part is valid until the next is yielded.
func (b *body) parts(yield func(part []byte) bool) {
	if !yield(b.head) {
		return
	}
	var scratch [16]byte
	for i, o := range b.objects {
		if !yield(b.envelope.AppendItemHead(scratch[:0], i, len(o.Bytes))) || !yield(o.Bytes) {
			return
		}
	}
	yield(b.tail)
}

// measureIndented sets size to that of the indented list, or sets unindentable. It indents the list to find out.
func (b *body) measureIndented() {
	counter := &limitedCounter{limit: max(indentAnyway, maxIndentGrowth*b.size)}
	out := bufio.NewWriter(counter)
	err := writeIndented(out, b)
	if err == nil {
		err = out.Flush()
	}
	b.unindentable = err != nil
	if !b.unindentable {
		b.size = counter.size
	}
}

// limitedCounter counts bytes, and fails beyond its limit, so that nobody can have gigabytes indented.
type limitedCounter struct{ size, limit int }

// Write implements io.Writer.
func (c *limitedCounter) Write(p []byte) (int, error) {
	c.size += len(p)
	if c.size > c.limit {
		return 0, errors.New("the list grows too much when it is indented")
	}
	return len(p), nil
}

// release returns the slice of objects to its pool, and the room.
func (b *body) release() {
	clear(b.objects) // a pooled slice must not keep objects in memory
	*b.pooled = b.objects[:0]
	objectSlices.Put(b.pooled)
	b.room.Release()
}

// writeList writes the list b with its headers, compressed if the client accepts gzip and the list is long.
func (h *Handler) writeList(w http.ResponseWriter, acceptsGzip bool, b *body) {
	compress := acceptsGzip && b.size > gzipAbove
	setHeaders(w.Header(), b.auditID, b.envelope, b.envelope.ContentType)
	if compress {
		setGzipHeaders(w.Header())
	}
	w.WriteHeader(http.StatusOK)

	out := h.writers.get(w, b.size)
	defer out.release()
	var err error
	switch {
	case b.indented && compress:
		err = h.compressIndented(out.Writer, b)
	case b.indented:
		err = writeIndented(out.Writer, b)
	case compress:
		err = h.Compressor.Write(out.Writer, b.envelope, b.head, b.objects, b.tail)
	default:
		err = writeParts(out.Writer, b)
	}
	// An error is one of the connection, so no client is left to learn of it.
	if err == nil {
		_ = out.Flush()
	}
}

// writeParts writes the list as it is. It stops at the first error, since the client has left then.
func writeParts(out *bufio.Writer, b *body) error {
	for part := range b.parts {
		if _, err := out.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// writeIndented writes the list as indented JSON.
func writeIndented(out *bufio.Writer, b *body) error {
	var indenter wire.Indenter
	for part := range b.parts {
		if err := indenter.Indent(out, part); err != nil {
			return err
		}
	}
	return nil
}

// compressIndented writes the list b to out as indented JSON, compressed with gzip.
func (h *Handler) compressIndented(out *bufio.Writer, b *body) error {
	stream := h.Compressor.NewStream(out)
	buffer := h.writers.get(stream, b.size)
	defer buffer.release()
	if err := writeIndented(buffer.Writer, b); err != nil {
		return err
	}
	if err := buffer.Flush(); err != nil {
		return err
	}
	return stream.Close()
}

// setHeaders sets the headers that kube-apiserver sends with a list or a watch.
func setHeaders(header http.Header, auditID string, envelope *wire.Envelope, contentType string) {
	header.Set(auditv1.HeaderAuditID, auditID)
	header.Set("Cache-Control", "no-cache, private")
	for name, values := range envelope.Headers {
		header[name] = slices.Clone(values)
	}
	header.Set("Content-Type", contentType)
}

// setGzipHeaders adds the headers that kube-apiserver sends with a compressed answer.
func setGzipHeaders(header http.Header) {
	header.Set("Content-Encoding", "gzip")
	header.Set("Vary", "Accept-Encoding")
}
