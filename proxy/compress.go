package proxy

import (
	"bufio"
	"net/http"
)

// gzipAbove is the size in bytes above which kube-apiserver compresses a body (endpoints/handlers/responsewriters,
// defaultGzipThresholdBytes).
const gzipAbove = 128 * 1024

// compressIndented writes the list as indented JSON, compressed with gzip.
func (h *Handler) compressIndented(out *bufio.Writer, b *body) error {
	stream := h.Compressor.Stream(out)
	plain := h.writers.get(stream, b.size)
	defer plain.release()
	if err := writeIndented(plain.Writer, b); err != nil {
		return err
	}
	if err := plain.Flush(); err != nil {
		return err
	}
	return stream.Close()
}

// setCompressed adds the headers that kube-apiserver sends with a compressed answer.
func setCompressed(h http.Header) {
	h.Set("Content-Encoding", "gzip")
	h.Set("Vary", "Accept-Encoding")
}
