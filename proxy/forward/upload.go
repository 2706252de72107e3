package forward

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// maxKept is how long a body may be, in bytes, that is kept so that it can be sent again. It is what
// kube-apiserver accepts (MaxRequestBodyBytes in k8s.io/apiserver/pkg/server/config.go).
const maxKept = 3 << 20

// errNotKept means that the API server has not looked at the request, which cannot be sent again.
var errNotKept = errors.New("the API server closed the connection before it looked at the request, whose body was not kept")

// Keep gives room for a body of so many bytes, until free is called. There may be none.
type Keep func(bytes int64) (free func(), ok bool)

// upload is the body of a caller's request on its way to the API server. Requests share connections
// there. When the API server closes one (GOAWAY) and has not looked at a request, the transport sends
// that again, and asks for its body from the beginning. So a body whose length is known is read whole
// before it is sent, if there is room for it. Any other is passed on as it comes.
type upload struct {
	body   io.ReadCloser
	whole  []byte                // what body had, if it is kept
	begun  atomic.Bool           // body is being read, and not kept
	failed atomic.Pointer[error] // why reading body failed, other than by its end
}

// newUpload returns the body of r. free gives back the room that it takes.
func newUpload(r *http.Request, keep Keep) (u *upload, free func()) {
	u, free = &upload{body: r.Body}, func() {}
	// Who expects a 100 sends nothing before, so it need not be sent again.
	if keep == nil || r.ContentLength <= 0 || r.ContentLength > maxKept || r.Header.Get("Expect") != "" {
		return u, free
	}
	room, ok := keep(r.ContentLength)
	if !ok {
		return u, free
	}
	whole := bytes.NewBuffer(make([]byte, 0, r.ContentLength+bytes.MinRead)) // it reads the end, too
	if _, err := whole.ReadFrom(r.Body); err != nil {
		u.failed.Store(&err)
	}
	u.whole = whole.Bytes()
	return u, room
}

// reader returns the body from its beginning. The error is errNotKept.
func (u *upload) reader() (io.ReadCloser, error) {
	switch {
	case u.whole != nil:
		return io.NopCloser(bytes.NewReader(u.whole)), nil
	case u.begun.Load():
		return nil, errNotKept
	}
	return &passedOn{upload: u}, nil
}

// failure is the reason why the caller's body could not be read; nil if it could.
func (u *upload) failure() error {
	if err := u.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// passedOn is one attempt to send a body that is not kept.
type passedOn struct {
	*upload
	closed atomic.Bool
}

// Read implements io.Reader.
func (p *passedOn) Read(b []byte) (int, error) {
	p.begun.Store(true)
	if p.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := p.body.Read(b)
	if err != nil && err != io.EOF && !p.closed.Load() {
		p.failed.Store(&err)
	}
	return n, err
}

// Close ends a Read that waits. A body of which nothing was read can still be sent by another attempt.
func (p *passedOn) Close() error {
	p.closed.Store(true)
	if !p.begun.Load() {
		return nil
	}
	return p.body.Close()
}
