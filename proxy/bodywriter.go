package proxy

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"sync"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// gzipAbove is the size in bytes above which kube-apiserver compresses a body (endpoints/handlers/responsewriters,
// defaultGzipThresholdBytes).
const gzipAbove = 128 * 1024

// writeList writes the list b with its headers, compressed if the client accepts gzip and the list is long.
func (h *Handler) writeList(w http.ResponseWriter, acceptsGzip bool, b *body) {
	compress := acceptsGzip && b.size > gzipAbove
	setHeaders(w.Header(), b.auditID, b.envelope, b.envelope.ContentType)
	if compress {
		setGzipHeaders(w.Header())
	}
	w.WriteHeader(http.StatusOK)

	out := h.writers.get(w, b.size)
	defer h.writers.put(out)
	var err error
	switch {
	case b.indented && compress:
		err = h.compressIndented(out, b)
	case b.indented:
		err = writeIndented(out, b)
	case compress:
		err = h.Compressor.Write(out, b.envelope, b.head, b.objects, b.tail)
	default:
		err = writeParts(out, b)
	}
	// An error means that the connection has failed, so nobody can be told. (Indenting cannot fail: markIndented has tried it.)
	if err == nil {
		_ = out.Flush()
	}
}

// writeParts writes the list as it is.
func writeParts(out *bufio.Writer, b *body) error {
	for part := range b.parts {
		if _, err := out.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// writeIndented writes the list as indented JSON, and flushes out. It fails if out fails, or if the list is nested too deeply.
func writeIndented(out *bufio.Writer, b *body) error {
	var indenter wire.Indenter
	for part := range b.parts {
		if err := indenter.Indent(out, part); err != nil {
			return err
		}
	}
	return out.Flush()
}

// compressIndented writes the list as indented JSON, compressed with gzip. After an error it does not close the gzip stream:
// the connection has failed, and Close would free nothing.
func (h *Handler) compressIndented(out *bufio.Writer, b *body) error {
	stream := h.Compressor.NewStream(out)
	buffer := h.writers.get(stream, b.size)
	defer h.writers.put(buffer)
	if err := writeIndented(buffer, b); err != nil {
		return err
	}
	return stream.Close()
}

// setHeaders sets the headers that kube-apiserver sends with a list or a watch, and those of the envelope. A watch may have
// another Content-Type than the envelope, whose ContentType is that of lists.
func setHeaders(header http.Header, auditID string, envelope *wire.Envelope, contentType string) {
	header.Set(auditv1.HeaderAuditID, auditID)
	header.Set("Cache-Control", "no-cache, private")
	for name, values := range envelope.Headers {
		header[name] = slices.Clone(values)
	}
	header.Set("Content-Type", contentType)
}

// setGzipHeaders sets the headers that kube-apiserver sends with a compressed answer.
func setGzipHeaders(header http.Header) {
	header.Set("Content-Encoding", "gzip")
	header.Set("Vary", "Accept-Encoding")
}

// bufferSizes are the sizes of the buffers through which answers are written, in bytes. A buffer goes to the connection in one
// write when it is full or flushed.
var bufferSizes = [...]int{4 << 10, 16 << 10, 64 << 10}

// writerPool keeps buffered writers of each size for reuse. It is safe for concurrent use.
type writerPool [len(bufferSizes)]sync.Pool

// get returns a writer to w for an answer of length bytes. The writer must be put back. Its buffer is the smallest one that
// holds the answer, or the largest one if none does: 4 KiB for an answer of 1 KiB, and 64 KiB for one of 1 MiB.
// --max-inflight-bytes does not count the bytes of buffers, so they should be few.
func (p *writerPool) get(w io.Writer, length int) *bufio.Writer {
	sizeIndex := 0
	for sizeIndex < len(p)-1 && bufferSizes[sizeIndex] < length {
		sizeIndex++
	}
	writer, ok := p[sizeIndex].Get().(*bufio.Writer)
	if !ok {
		writer = bufio.NewWriterSize(nil, bufferSizes[sizeIndex])
	}
	writer.Reset(w)
	return writer
}

// put returns a writer to the pool. Bytes that were not flushed are lost.
func (p *writerPool) put(writer *bufio.Writer) {
	writer.Reset(nil)
	sizeIndex := slices.Index(bufferSizes[:], writer.Size())
	p[sizeIndex].Put(writer)
}
