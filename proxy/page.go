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
	// maxIndentGrowth is how many times longer a list may become when it is indented, if the result is
	// longer than indentAnyway. Pods become twice as long. But somebody can make an object of 1 MiB
	// that grows to gigabytes.
	maxIndentGrowth = 16
	indentAnyway    = 1 << 20
)

// pages are reused: filling a page costs only the copying.
var pages = sync.Pool{New: func() any { return new([]*index.Object) }}

// body is a page of a list, ready to be written, or the state with which a watch begins.
type body struct {
	envelope     *wire.Envelope
	head, tail   []byte // of a list, around its objects
	objects      []*index.Object
	size         int // in bytes, before compression
	indented     bool
	unindentable bool             // it would grow too much, or is nested too deeply
	pooled       *[]*index.Object // from pages; objects is a part of it
	room         limits.Grant     // for size
	auditID      string           // of the answer
}

// newBody returns the body of an answer. It must be released.
func newBody(a *answer) *body {
	if a.asked.Watch {
		return newInitialEvents(a)
	}
	b := &body{envelope: a.snapshot.Envelope, indented: a.query.Indented, pooled: pages.Get().(*[]*index.Object)}
	page := a.snapshot.Page(a.query, (*b.pooled)[:0])
	b.objects = page.Objects

	meta := wire.ListMeta{Revision: a.snapshot.Revision}
	if a.query.Shards != nil {
		meta.Shards = a.query.Shards.String()
	}
	if page.Next != "" {
		meta.Continue = policy.EncodeContinue(a.snapshot.Revision, page.Next)
		meta.Remaining, meta.HasRemaining = page.Remaining, page.Counted
	}
	n, size := len(page.Objects), 0
	var scratch [16]byte
	for i, o := range page.Objects {
		size += len(b.envelope.AppendItemHead(scratch[:0], i, len(o.Bytes))) + len(o.Bytes)
	}
	b.head = b.envelope.AppendHead(nil, meta, n, size)
	b.tail = b.envelope.AppendTail(nil, meta, n)
	b.size = len(b.head) + size + len(b.tail)
	if b.indented {
		b.measureIndented()
	}
	return b
}

// eventOverhead is about how many bytes an event has in addition to its object.
const eventOverhead = 64

// newInitialEvents returns the state with which a watch begins. Its size is an estimate.
func newInitialEvents(a *answer) *body {
	b := &body{envelope: a.snapshot.Envelope, pooled: pages.Get().(*[]*index.Object)}
	b.objects = (*b.pooled)[:0]
	if a.initial {
		b.objects = a.snapshot.Page(a.query, b.objects).Objects
	}
	for _, o := range b.objects {
		b.size += len(o.Bytes) + eventOverhead
	}
	return b
}

// parts yields the bytes of a list, in order. Each part is valid until the next one.
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

// measureIndented sets the size of the indented body, or unindentable.
func (b *body) measureIndented() {
	counter := &countingWriter{limit: max(indentAnyway, maxIndentGrowth*b.size)}
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

// countingWriter counts bytes, and fails beyond its limit.
type countingWriter struct{ size, limit int }

// Write implements io.Writer.
func (c *countingWriter) Write(p []byte) (int, error) {
	c.size += len(p)
	if c.size > c.limit {
		return 0, errors.New("the list grows too much when it is indented")
	}
	return len(p), nil
}

// release lets go of the objects, and gives the room back.
func (b *body) release() {
	clear(b.objects)
	*b.pooled = b.objects[:0]
	pages.Put(b.pooled)
	b.room.Release()
}

// writePage writes the answer to r.
func (h *Handler) writePage(w http.ResponseWriter, asked *policy.Request, b *body) {
	compress := asked.Gzip && b.size > gzipAbove
	setHeaders(w.Header(), b.auditID, b.envelope, b.envelope.ContentType)
	if compress {
		setCompressed(w.Header())
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
		err = writeList(out.Writer, b)
	}
	// An error here is one of the connection: no client is left that could get it.
	if err == nil {
		_ = out.Flush()
	}
}

// writeList writes the list. It ends at the first error, since the client is gone then.
func writeList(out *bufio.Writer, b *body) error {
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
		if err := indenter.Write(out, part); err != nil {
			return err
		}
	}
	return nil
}

// setHeaders sets the headers that kube-apiserver sends with a list or a watch.
func setHeaders(h http.Header, auditID string, envelope *wire.Envelope, contentType string) {
	h.Set(auditv1.HeaderAuditID, auditID)
	h.Set("Cache-Control", "no-cache, private")
	for name, values := range envelope.Headers {
		h[name] = slices.Clone(values)
	}
	h.Set("Content-Type", contentType)
}
