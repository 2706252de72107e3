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
	// An indented list may be maxIndentGrowth times as long as the plain one, or minIndentLimit bytes if that is more. Lists
	// of pods become twice as long, but somebody could make an object of 1 MiB that grows to gigabytes.
	maxIndentGrowth = 16
	minIndentLimit  = 1 << 20
)

// gzipAbove is the size in bytes above which kube-apiserver compresses a body (endpoints/handlers/responsewriters,
// defaultGzipThresholdBytes).
const gzipAbove = 128 * 1024

// itemHeadSize is enough for the bytes before an item: a comma in JSON, or a tag and a length in protobuf.
const itemHeadSize = 16

// objectSlices keeps slices of objects for reuse by later answers.
var objectSlices = sync.Pool{New: func() any { return new([]*index.Object) }}

func takeObjects() *[]*index.Object { return objectSlices.Get().(*[]*index.Object) }

// body is what an answer from memory holds until its client has read it: all objects of a list, or the objects with which
// a watch begins (for many watches none). [Handler.writeList] writes the body of a list, and [watchStream] that of a watch.
type body struct {
	// auditID is the Audit-Id of the answer.
	auditID  string
	envelope *wire.Envelope
	objects  []*index.Object
	// pooled is the entry of objectSlices from which objects was taken.
	pooled *[]*index.Object
	// size is the size of the body in bytes before compression. For a watch it is an estimate.
	size int
	// room is the share of --max-inflight-bytes that the body occupies. The caller of newBody acquires it when size is known,
	// and release gives it back.
	room limits.Grant

	// The fields from here on are empty for a watch.

	// head and tail are the bytes of a list before its first item and after its last.
	head, tail []byte
	// indented reports whether the list is written as indented JSON.
	indented bool
	// unindentable reports that the list must be forwarded: it would become too long when indented, or it is nested too
	// deeply for a [wire.Indenter].
	unindentable bool
}

// newBody returns the body of a list or a watch. It must be released.
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
	itemBytes := b.countItemBytes()
	b.head = b.envelope.AppendHead(nil, meta, len(b.objects), itemBytes)
	b.tail = b.envelope.AppendTail(nil, meta, len(b.objects))
	b.size = len(b.head) + itemBytes + len(b.tail)
	if b.indented {
		b.measureIndented()
	}
	return b
}

// countItemBytes returns the number of bytes of all objects, and of the bytes before each ([wire.Envelope.AppendItemHead]).
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

// newInitialState returns the body for a watch: the objects with which it begins, or none if it begins with the next event.
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

// parts yields all bytes of a list, in order and not indented. Each part is valid until the next is yielded.
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

// measureIndented indents the list without keeping the result, and sets size to the number of bytes. If the list cannot be
// indented, measureIndented sets unindentable instead.
func (b *body) measureIndented() {
	counter := &limitedCounter{limit: max(minIndentLimit, maxIndentGrowth*b.size)}
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

// limitedCounter counts the bytes of an indented list. It fails beyond its limit, so that indenting stops there even if the
// list would grow to gigabytes.
type limitedCounter struct{ size, limit int }

// Write implements io.Writer.
func (c *limitedCounter) Write(p []byte) (int, error) {
	c.size += len(p)
	if c.size > c.limit {
		return 0, errors.New("the list grows too much when it is indented")
	}
	return len(p), nil
}

// release returns the slice of objects to its pool, and gives the room back.
func (b *body) release() {
	clear(b.objects)          // a pooled slice must not keep objects in memory
	*b.pooled = b.objects[:0] // the slice may have grown since it was taken from the pool
	objectSlices.Put(b.pooled)
	b.room.Release()
}

// writeList writes the list b with its headers, compressed if the client accepts gzip and the list is long.
func (h *Handler) writeList(w http.ResponseWriter, acceptsGzip bool, b *body) {
	compress := acceptsGzip && b.size > gzipAbove
	setHeaders(w.Header(), b.auditID, b.envelope.Headers, b.envelope.ContentType)
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
	// Only the connection can fail here, since indenting has succeeded once before, in measureIndented. After such a failure
	// no client is left to learn of it.
	if err == nil {
		_ = out.Flush()
	}
}

// writeParts writes the list without indentation and compression. It stops at the first error of the connection.
func writeParts(out *bufio.Writer, b *body) error {
	for part := range b.parts {
		if _, err := out.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// writeIndented writes the list as indented JSON. It stops at the first error of the connection or of the indenter.
func writeIndented(out *bufio.Writer, b *body) error {
	var indenter wire.Indenter
	for part := range b.parts {
		if err := indenter.Indent(out, part); err != nil {
			return err
		}
	}
	return nil
}

// compressIndented writes the list b to out as indented JSON, compressed with gzip. After an error the gzip stream is not
// closed: its end would go to a connection that has failed, and a stream holds nothing that Close frees.
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

// setHeaders sets the headers that kube-apiserver sends with a list or a watch. further has those of an [wire.Envelope].
func setHeaders(header http.Header, auditID string, further http.Header, contentType string) {
	header.Set(auditv1.HeaderAuditID, auditID)
	header.Set("Cache-Control", "no-cache, private")
	for name, values := range further {
		header[name] = slices.Clone(values)
	}
	header.Set("Content-Type", contentType)
}

// setGzipHeaders sets the headers that kube-apiserver sends with a compressed answer.
func setGzipHeaders(header http.Header) {
	header.Set("Content-Encoding", "gzip")
	header.Set("Vary", "Accept-Encoding")
}
