package proxy

import (
	"bufio"
	"net/http"
)

// gzipAbove is the size in bytes above which kube-apiserver compresses a body (endpoints/handlers/responsewriters,
// defaultGzipThresholdBytes).
const gzipAbove = 128 * 1024

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

// setGzipHeaders adds the headers that kube-apiserver sends with a compressed answer.
func setGzipHeaders(header http.Header) {
	header.Set("Content-Encoding", "gzip")
	header.Set("Vary", "Accept-Encoding")
}
