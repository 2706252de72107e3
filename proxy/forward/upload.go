package forward

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// maxKept is the length in bytes of the longest body that is kept so that it can be sent again. kube-apiserver accepts
// no longer one (MaxRequestBodyBytes in k8s.io/apiserver/pkg/server/config.go).
const maxKept = 3 << 20

// errNotKept means that the API server has not looked at the request, and that it cannot be sent again.
var errNotKept = errors.New(
	"the API server closed the connection before it looked at the request, whose body was not kept")

// Keep reserves memory for the bytes of a body until free is called. ok is false if there is not enough left.
type Keep func(bytes int64) (free func(), ok bool)

// upload is the body of a caller's request on its way to the API server. Requests share connections
// there. When the API server closes one (GOAWAY) and has not looked at a request, the transport sends
// that again, and asks for its body from the beginning. So a body whose length is known is read whole
// before it is sent, if there is room for it. Any other is passed on as it comes.
type upload struct {
	body   io.ReadCloser
	whole  []byte                // the bytes of body if it is kept, otherwise nil
	begun  atomic.Bool           // reading body has begun, and it is not kept
	failed atomic.Pointer[error] // the error of reading body, other than io.EOF
}

// newUpload returns the body of r. free releases its memory.
func newUpload(r *http.Request, keep Keep) (u *upload, free func()) {
	u = &upload{body: r.Body}
	free = func() {}
	// A client that expects a 100 (Continue) sends its body only after it, so the body need not be sent twice.
	if keep == nil || r.ContentLength <= 0 || r.ContentLength > maxKept || r.Header.Get("Expect") != "" {
		return u, free
	}
	release, ok := keep(r.ContentLength)
	if !ok {
		return u, free
	}
	// With MinRead more than the length, ReadFrom can read io.EOF without growing the buffer.
	whole := bytes.NewBuffer(make([]byte, 0, r.ContentLength+bytes.MinRead))
	if _, err := whole.ReadFrom(r.Body); err != nil {
		u.failed.Store(&err)
	}
	u.whole = whole.Bytes()
	return u, release
}

// reader returns the body from its beginning, or errNotKept if reading has begun and the body is not kept.
func (u *upload) reader() (io.ReadCloser, error) {
	switch {
	case u.whole != nil:
		return io.NopCloser(bytes.NewReader(u.whole)), nil
	case u.begun.Load():
		return nil, errNotKept
	}
	return &attempt{upload: u}, nil
}

// failure returns the error of reading the caller's body; nil if there was none.
func (u *upload) failure() error {
	if err := u.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// attempt reads a body that is not kept, for one attempt to send it.
type attempt struct {
	*upload
	closed atomic.Bool
}

// Read implements io.Reader.
func (a *attempt) Read(b []byte) (int, error) {
	a.begun.Store(true)
	if a.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := a.body.Read(b)
	if err != nil && err != io.EOF && !a.closed.Load() {
		a.failed.Store(&err)
	}
	return n, err
}

// Close ends a Read that waits. If nothing was read, the body stays open, and another attempt can send it. Read stores
// begun before it loads closed, and Close does it the other way round, so at least one of them sees the other.
func (a *attempt) Close() error {
	a.closed.Store(true)
	if !a.begun.Load() {
		return nil
	}
	return a.body.Close()
}
