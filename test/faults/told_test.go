package faults

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/test/harness/hop"
)

// told ends each watch, as soon as it has something to tell, with an ERROR in its place, as
// kube-apiserver writes it: in JSON and in protobuf. Feeds of both must be told.
func (s *scene) told(code int) time.Time {
	s.Helper()
	var inJSON, inProtobuf atomic.Int32
	over := s.changed(func(r *http.Request, line []byte) ([]byte, error) {
		binary := !bytes.HasPrefix(line, []byte("{"))
		if ofFeed(r) {
			if binary {
				inProtobuf.Add(1)
			} else {
				inJSON.Add(1)
			}
		}
		return hop.ErrorEvent(code, binary), io.EOF
	})
	if inJSON.Load() == 0 || inProtobuf.Load() == 0 {
		s.Errorf("feeds were told %d errors in JSON and %d in protobuf", inJSON.Load(), inProtobuf.Load())
	}
	return over
}
