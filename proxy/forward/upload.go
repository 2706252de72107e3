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

// errNotKept means that the request cannot be sent again: its body was not kept, and the transport has begun to read it.
var errNotKept = errors.New(
	"the API server closed the connection before it looked at the request, whose body was not kept")

// Reserve reserves memory for a body of length bytes, until release is called. ok is false if too little memory is left.
type Reserve func(length int64) (release func(), ok bool)

// upload is the body of a caller's request on its way to the API server. The transport may need it more than once: if the API
// server closes the connection (GOAWAY) before it looks at the request, the transport sends the request again.
//
// So the body is read and kept before the request is sent, under four conditions: its length is known, the length is at most
// 3 MiB (maxKept), there is memory for it, and the client does not wait for a 100 (Continue). Any other body is passed on as it
// comes, and can be sent again only if nothing of it was read.
type upload struct {
	body      io.ReadCloser
	kept      []byte                // all bytes of body; nil if it is not kept
	readBegun atomic.Bool           // an attempt has begun to read a body that is not kept
	readErr   atomic.Pointer[error] // the error of reading body; nil after io.EOF
}

// readUpload returns the body of r. If the body is to be kept, readUpload reads it first. If reserve is nil, the body is not
// kept. After an error of reading, r must not be sent. release gives back the memory from reserve. The caller must call
// release, even after an error.
func readUpload(r *http.Request, reserve Reserve) (u *upload, release func(), err error) {
	u = &upload{body: r.Body}
	releaseNothing := func() {}
	// A client that expects a 100 (Continue) sends its body only when the API server has looked at the request.
	waitsForContinue := r.Header.Get("Expect") != ""
	hasKnownLength := r.ContentLength > 0 // 0 means no body, and -1 an unknown length
	if reserve == nil || !hasKnownLength || r.ContentLength > maxKept || waitsForContinue {
		return u, releaseNothing, nil
	}
	release, ok := reserve(r.ContentLength)
	if !ok {
		return u, releaseNothing, nil
	}
	// bytes.MinRead more than the length lets ReadFrom reach io.EOF without growing the buffer.
	content := bytes.NewBuffer(make([]byte, 0, r.ContentLength+bytes.MinRead))
	if _, err := content.ReadFrom(r.Body); err != nil {
		u.readErr.Store(&err)
		return u, release, err
	}
	u.kept = content.Bytes()
	return u, release, nil
}

// newAttempt returns the body, from its beginning, for one attempt to send it. It returns errNotKept if the body is not kept
// and a Read of it has begun.
func (u *upload) newAttempt() (io.ReadCloser, error) {
	if u.kept != nil {
		return io.NopCloser(bytes.NewReader(u.kept)), nil
	}
	if u.readBegun.Load() {
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

// attempt is the reader of a body that is not kept, for one attempt to send it.
type attempt struct {
	upload *upload // shared with the other attempts
	closed atomic.Bool
}

// Read implements [io.Reader].
func (a *attempt) Read(b []byte) (int, error) {
	a.upload.readBegun.Store(true) // must come before closed.Load: see Close
	if a.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := a.upload.body.Read(b)
	if err != nil && err != io.EOF && !a.closed.Load() {
		a.upload.readErr.Store(&err)
	}
	return n, err
}

// Close implements [io.Closer]. If a Read has begun, Close closes the caller's body, so that a waiting Read returns. If no Read
// has begun, the body stays open, so that another attempt can send it.
//
// Close stores closed, and then loads readBegun. Read stores readBegun, and then loads closed. So if they run at the same time,
// Read sees that it must not read, or Close sees that it must close the body, or both.
func (a *attempt) Close() error {
	a.closed.Store(true)
	if !a.upload.readBegun.Load() {
		return nil
	}
	return a.upload.body.Close()
}
