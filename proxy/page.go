package proxy

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/snapshot"
)

const (
	// gzipAbove is the size of a body above which kube-apiserver compresses it
	// (endpoints/handlers/responsewriters, defaultGzipThresholdBytes).
	gzipAbove = 128 * 1024
	// gzipLevel is kube-apiserver's.
	gzipLevel = 1
	// writeSize is how much is handed to the connection at once.
	writeSize = 64 << 10
)

// pages, writers and compressors are used again: a page's cost is that of copying it.
var (
	pages       = sync.Pool{New: func() any { return new([]*snapshot.Object) }}
	writers     = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writeSize) }}
	compressors = sync.Pool{New: func() any {
		z, err := gzip.NewWriterLevel(nil, gzipLevel)
		if err != nil {
			panic(err) // the level is a constant
		}
		return z
	}}
)

// writePage writes the list that kube-apiserver would have written.
func writePage(w http.ResponseWriter, r *http.Request, list policy.Request, a answer) {
	buf := pages.Get().(*[]*snapshot.Object)
	page := a.snapshot.Page(a.query, (*buf)[:0])
	defer func() {
		clear(page.Objects)
		*buf = page.Objects[:0]
		pages.Put(buf)
	}()

	meta := snapshot.ListMeta{Revision: a.snapshot.Revision}
	if page.Next != "" {
		meta.Continue = policy.EncodeContinue(a.snapshot.Revision, page.Next)
		meta.Remaining, meta.HasRemaining = page.Remaining, page.Counted
	}
	frame, n, size := a.snapshot.Frame, len(page.Objects), 0
	var scratch [16]byte
	for i, o := range page.Objects {
		size += len(frame.AppendItemHead(scratch[:0], i, len(o.Bytes))) + len(o.Bytes)
	}
	head := frame.AppendHead(nil, meta, n, size)
	tail := frame.AppendTail(nil, meta, n)
	compress := list.Gzip && len(head)+size+len(tail) > gzipAbove
	setListHeaders(w.Header(), r, frame, compress)
	w.WriteHeader(http.StatusOK)

	out := writers.Get().(*bufio.Writer)
	defer func() {
		out.Reset(nil)
		writers.Put(out)
	}()
	var body io.Writer = w
	if compress {
		z := compressors.Get().(*gzip.Writer)
		z.Reset(w)
		body = z
		defer func() {
			// An error here is the connection's; there is nobody left to tell.
			_ = out.Flush()
			_ = z.Close()
			compressors.Put(z)
		}()
	}
	out.Reset(body)
	if writeList(out, frame, page.Objects, head, tail) == nil {
		_ = out.Flush() // as above
	}
}

// writeList writes stored bytes and what the frame puts between them. It ends at the first
// error: the client is gone.
func writeList(out *bufio.Writer, frame *snapshot.Frame, objects []*snapshot.Object, head, tail []byte) error {
	if _, err := out.Write(head); err != nil {
		return err
	}
	for i, o := range objects {
		if _, err := out.Write(frame.AppendItemHead(out.AvailableBuffer(), i, len(o.Bytes))); err != nil {
			return err
		}
		if _, err := out.Write(o.Bytes); err != nil {
			return err
		}
	}
	_, err := out.Write(tail)
	return err
}

// setListHeaders sets what kube-apiserver sends with a list (list-contract.md, "Bytes").
func setListHeaders(h http.Header, r *http.Request, frame *snapshot.Frame, compressed bool) {
	auditID := r.Header.Get("Audit-Id")
	if auditID == "" {
		auditID = uuid.NewString()
	}
	h.Set("Audit-Id", auditID)
	for range frame.AuditIDs - 1 {
		h.Add("Audit-Id", auditID)
	}
	h.Set("Cache-Control", "no-cache, private")
	if len(frame.CacheControl) > 1 {
		h["Cache-Control"] = slices.Clone(frame.CacheControl)
	}
	h.Set("Content-Type", frame.ContentType)
	for _, warning := range frame.Warnings {
		h.Add("Warning", warning)
	}
	if compressed {
		h.Set("Content-Encoding", "gzip")
		h.Set("Vary", "Accept-Encoding")
	}
}
