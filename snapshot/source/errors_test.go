package source

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// TestIsTrouble: what tells of the upstream or of the way to it, and not of a resource.
func TestIsTrouble(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"no answer":             {&url.Error{Op: "Get", URL: "https://api", Err: io.EOF}, true},
		"a stream is cut":       {fmt.Errorf("%w: %w", wire.ErrEnded, io.ErrUnexpectedEOF), true},
		"the account is gone":   {&wire.AnswerError{Code: http.StatusUnauthorized}, true},
		"too much to do":        {&wire.AnswerError{Code: http.StatusTooManyRequests}, true},
		"not this resource":     {&wire.AnswerError{Code: http.StatusForbidden}, false},
		"an event out of order": {wire.Inconsistent("twice"), false},
	} {
		if got := IsUpstreamFailure(tt.err); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
