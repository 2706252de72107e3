package proxy

import (
	"io"
	"net/http"
	"time"
)

// stallBody is a request's body of which something must come within limit whenever it is read.
// kube-apiserver, asked over HTTP/1.1, does not even say 401 before it has the body, so a caller
// without any rights could else keep a request in flight for ever.
//
// It is used by one goroutine at a time.
type stallBody struct {
	io.ReadCloser
	control *http.ResponseController
	limit   time.Duration // 0: none
}

// guardUpload bounds how long the body of r may stall, if it has one.
func guardUpload(w http.ResponseWriter, r *http.Request, limit time.Duration) {
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		r.Body = &stallBody{ReadCloser: r.Body, control: http.NewResponseController(w), limit: limit}
	}
}

// letUploadStall takes the bound of guardUpload away, for streams of callers who are known. Nothing
// of the body has been read.
func letUploadStall(r *http.Request) {
	if body, ok := r.Body.(*stallBody); ok {
		body.limit = 0
	}
}

// Read implements io.Reader.
func (b *stallBody) Read(p []byte) (int, error) {
	if b.limit == 0 {
		return b.ReadCloser.Read(p)
	}
	// It cannot fail for a server's ResponseWriter, but for one whose connection is gone already.
	_ = b.control.SetReadDeadline(time.Now().Add(b.limit))
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		// From here on the server reads to notice that the client goes.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
