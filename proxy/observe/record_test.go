package observe

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// goneWriter is a ResponseWriter whose client leaves after a few bytes.
type goneWriter struct {
	http.ResponseWriter
	left int
}

func (w *goneWriter) Write(p []byte) (int, error) {
	n := min(w.left, len(p))
	w.left -= n
	if n < len(p) {
		return n, http.ErrHandlerTimeout
	}
	return n, nil
}

func (w *goneWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestWhatIsWrittenIsCounted(t *testing.T) {
	w := &CountingWriter{ResponseWriter: &goneWriter{ResponseWriter: httptest.NewRecorder(), left: 5}}
	for _, tt := range []struct {
		text  string
		fails bool
		bytes int64
	}{
		{"abc", false, 3},
		{"def", true, 5},
		{"", false, 5},
	} {
		_, err := w.Write([]byte(tt.text))
		if (err != nil) != tt.fails || w.Bytes != tt.bytes {
			t.Errorf("after %q: %v, %d bytes", tt.text, err, w.Bytes)
		}
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		t.Errorf("it hides what is below: %v", err)
	}
}
