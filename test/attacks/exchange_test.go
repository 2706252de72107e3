package attacks

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// An outcome is all that came back on one connection.
type outcome struct {
	Answers []answer
	// End is how the connection ended, if not well.
	End string
}

// An answer to one request. A 1xx is an answer too.
type answer struct {
	Stream  uint32 // of HTTP/2; the answers are in this order
	Status  int
	Header  http.Header
	Body    string
	Trailer http.Header
	Reset   string // how the body or the stream ended, if not well
}

// first is the answer to the attack, or an empty one.
func (o outcome) first() answer {
	for _, a := range o.Answers {
		if a.Status >= 200 || a.Status == 0 {
			return a
		}
	}
	return answer{}
}

// cacheStatus says where the answer to the attack came from.
func (o outcome) cacheStatus() string { return o.first().Header.Get("Cache-Status") }

func (o outcome) hit() bool { return strings.HasPrefix(o.cacheStatus(), "listproxy; hit") }

// shows tells whether any byte of an outcome is the marker's.
func (o outcome) shows(marker string) bool {
	for _, a := range o.Answers {
		if strings.Contains(a.Body, marker) {
			return true
		}
	}
	return false
}

var (
	// listRevision is the revision of a list. That of a list from memory may be another than the
	// API server's, since other resources' changes move it.
	listRevision = regexp.MustCompile(`"metadata":\{"resourceVersion":"[0-9]+"`)
	// currentRevision is what the API server tells who asks for too large a revision.
	currentRevision = regexp.MustCompile(`, current: [0-9]+"`)
	// ownIdentifier is what a request was given to be found in the audit log, or the random one that
	// the API server gives a request without.
	ownIdentifier = regexp.MustCompile(`^(a[0-9]{5}\.|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$)`)
)

// comparable returns an outcome without what may differ. What was from memory lacks the headers of
// the API server's flow control.
func (o outcome) comparable(fromMemory bool) outcome {
	out := outcome{End: o.End}
	for _, a := range o.Answers {
		a.Header = a.Header.Clone()
		a.Header.Del("Date")
		a.Header.Del("Cache-Status")
		if id := a.Header.Get("Audit-Id"); id != "" {
			a.Header.Set("Audit-Id", ownIdentifier.ReplaceAllString(id, ""))
		}
		// net/http tells the length of a short body by itself, and what is short depends on the
		// protocol. A length must be right; whether it is told is not compared.
		if a.Header.Get("Content-Length") == strconv.Itoa(len(a.Body)) {
			a.Header.Del("Content-Length")
		}
		if fromMemory {
			a.Header.Del("X-Kubernetes-Pf-Flowschema-Uid")
			a.Header.Del("X-Kubernetes-Pf-Prioritylevel-Uid")
		}
		a.Body = currentRevision.ReplaceAllString(listRevision.ReplaceAllString(a.Body, ""), "")
		out.Answers = append(out.Answers, a)
	}
	return out
}

// diff says what of got is not as the API server has it. With closes, the connection may have been
// closed behind the first answer.
func diff(want, got outcome, closes bool) string {
	fromMemory := got.hit()
	w, g := want.comparable(fromMemory), got.comparable(fromMemory)
	if closes && len(g.Answers) > 0 && len(g.Answers) < len(w.Answers) {
		w.Answers = w.Answers[:len(g.Answers)]
	}
	return cmp.Diff(w, g)
}
