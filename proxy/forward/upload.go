package forward

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

const (
	// uploadKept is how much of a request's body is kept so that it can be sent again.
	uploadKept = 256 << 10
	// uploadChunk is how much is read at once.
	uploadChunk = 32 << 10
)

var (
	errUploadClosed = errors.New("the request's body is not read any further")
	errUploadGone   = errors.New("the request's body is too long to be sent again")
)

// upload is the body of a caller's request on its way to the API server. Requests share connections
// there. Two things can happen on such a connection for which the body must not be read directly:
//
//   - The API server says that it closes the connection (GOAWAY, as after every 401) and has not
//     looked at the request. Then the transport sends the request again elsewhere, and needs the
//     body from its beginning. The first uploadKept bytes are kept for that.
//   - The API server answers before it has read the body. Then the transport gives up reading, but
//     a Read that waits for the caller would delay the end of the answer.
//
// So the body is read in a goroutine of its own, one chunk at a time and only when asked for, and
// its readers can be closed while they wait.
type upload struct {
	body   io.Reader
	length int64       // how long the body says it is; -1 if it does not say
	failed atomic.Bool // reading the caller's body failed, other than by its end
	// exceeded is the bound that the body exceeds ([http.MaxBytesError]), or 0. It is set before
	// failed.
	exceeded atomic.Int64
	// read is how much was read; only the reading goroutine uses it.
	read int64

	mu      sync.Mutex
	changed sync.Cond // data, err or a closed reader
	data    []byte    // the body from offset skipped on
	skipped int       // bytes that are not kept any more
	reading bool      // a chunk is being read
	err     error     // how the body ended
}

func newUpload(body io.Reader, length int64) *upload {
	u := &upload{body: body, length: length}
	u.changed.L = &u.mu
	return u
}

// reader returns the body from its beginning, if that is still kept. Only the last reader is read.
func (u *upload) reader() (io.ReadCloser, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.skipped > 0 {
		return nil, errUploadGone
	}
	return &uploadReader{upload: u}, nil
}

// fill reads one chunk. Behind the last byte that was announced it also reads the end, which the
// transport wants to see before it sends this byte.
func (u *upload) fill() {
	chunk := make([]byte, u.room())
	n, err := u.body.Read(chunk)
	if u.read += int64(n); err == nil && u.read == u.length {
		var more int
		more, err = u.body.Read(chunk[n:])
		n += more
	}
	if err != nil && err != io.EOF {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			u.exceeded.Store(tooLarge.Limit)
		}
		u.failed.Store(true)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.data = append(u.data, chunk[:n]...)
	u.err = err
	u.reading = false
	u.changed.Broadcast()
}

// room is how much the next chunk may hold. The last one has a byte to spare, to read the end.
func (u *upload) room() int64 {
	if left := u.length - u.read; left >= 0 && left <= uploadChunk {
		return left + 1
	}
	return uploadChunk
}

// uploadReader is one attempt to send an upload.
type uploadReader struct {
	upload *upload
	offset int
	closed bool
}

// Read implements io.Reader.
func (r *uploadReader) Read(p []byte) (int, error) {
	u := r.upload
	u.mu.Lock()
	defer u.mu.Unlock()
	for {
		switch {
		case r.closed:
			return 0, errUploadClosed
		case r.offset < u.skipped:
			return 0, errUploadGone
		case r.offset < u.skipped+len(u.data):
			n := copy(p, u.data[r.offset-u.skipped:])
			r.offset += n
			if r.offset > uploadKept {
				// Too long to be sent again: what was read is not kept.
				u.data = append(u.data[:0], u.data[r.offset-u.skipped:]...)
				u.skipped = r.offset
			}
			return n, nil
		case u.err != nil:
			return 0, u.err
		}
		if !u.reading {
			u.reading = true
			go u.fill()
		}
		u.changed.Wait()
	}
}

// Close ends a Read that waits. net/http closes the body itself.
func (r *uploadReader) Close() error {
	r.upload.mu.Lock()
	defer r.upload.mu.Unlock()
	r.closed = true
	r.upload.changed.Broadcast()
	return nil
}
