package forward

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// maxKept bounds the length in bytes of a body that is kept so that it can be sent again. It is kube-apiserver's own
// bound on bodies (MaxRequestBodyBytes in k8s.io/apiserver/pkg/server/config.go).
const maxKept = 3 << 20

// errNotKept means that the request must be sent again, but its body is gone.
var errNotKept = errors.New(
	"the API server closed the connection before it looked at the request, whose body was not kept")

// Reserve reserves memory for a body of length bytes, until release is called. ok is false if too little memory is left.
type Reserve func(length int64) (release func(), ok bool)

// upload is the body of a caller's request on its way to the API server. Requests share connections there. When the API
// server closes a connection (GOAWAY) without having looked at a request, the transport sends the request again, and asks
// for its body from the beginning. So the whole body is read and kept before it is sent, if its length is known and there is
// memory for it. Any other body is passed on as it comes.
type upload struct {
	body    io.ReadCloser
	kept    []byte                // all bytes of body; nil if it is not kept
	begun   atomic.Bool           // a Read of a body that is not kept has begun
	readErr atomic.Pointer[error] // the error of reading body, other than io.EOF
}

// newUpload returns the body of r, and reads it if it is to be kept. release gives back the memory that reserve has reserved.
func newUpload(r *http.Request, reserve Reserve) (u *upload, release func()) {
	u = &upload{body: r.Body}
	none := func() {}
	// A client that expects a 100 (Continue) sends its body only when the API server has looked at the request.
	waitsForContinue := r.Header.Get("Expect") != ""
	hasKnownLength := r.ContentLength > 0 // 0 means no body, and -1 an unknown length
	if reserve == nil || !hasKnownLength || r.ContentLength > maxKept || waitsForContinue {
		return u, none
	}
	release, ok := reserve(r.ContentLength)
	if !ok {
		return u, none
	}
	// bytes.MinRead more than the length lets ReadFrom reach io.EOF without growing the buffer.
	content := bytes.NewBuffer(make([]byte, 0, r.ContentLength+bytes.MinRead))
	if _, err := content.ReadFrom(r.Body); err != nil {
		u.readErr.Store(&err)
		return u, release
	}
	u.kept = content.Bytes()
	return u, release
}

// reader returns the body from its beginning, or errNotKept if a Read has begun and the body is not kept. There must be a
// body.
func (u *upload) reader() (io.ReadCloser, error) {
	if u.kept != nil {
		return io.NopCloser(bytes.NewReader(u.kept)), nil
	}
	if u.begun.Load() {
		return nil, errNotKept
	}
	return &attempt{upload: u}, nil
}

// failure returns the error of reading the caller's body, or nil if there was none.
func (u *upload) failure() error {
	if err := u.readErr.Load(); err != nil {
		return *err
	}
	return nil
}

// attempt is a body that is not kept, for one attempt to send it.
type attempt struct {
	upload *upload // shared with the other attempts
	closed atomic.Bool
}

// Read implements [io.Reader].
func (a *attempt) Read(b []byte) (int, error) {
	a.upload.begun.Store(true) // before closed is loaded, see Close
	if a.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := a.upload.body.Read(b)
	if err != nil && err != io.EOF && !a.closed.Load() {
		a.upload.readErr.Store(&err)
	}
	return n, err
}

// Close implements [io.Closer]. It ends a Read that waits. If no Read has begun, the body stays open, so that another
// attempt can send it.
//
// Read stores begun before it loads closed, and Close stores closed before it loads begun. So of a Read and a Close at the
// same time, at least one sees the other.
func (a *attempt) Close() error {
	a.closed.Store(true)
	if !a.upload.begun.Load() {
		return nil
	}
	return a.upload.body.Close()
}
