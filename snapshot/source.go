package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Resource names a collection: a resource as the upstream serves it, in one representation.
// All fields together are the key; two collections never share bytes.
type Resource struct {
	schema.GroupVersionResource
	Namespaced     bool
	Representation media.Representation
}

func (r Resource) String() string {
	return fmt.Sprintf("%s.%s.%s (%s)", r.Resource, r.Version, r.Group, r.Representation)
}

// path of the resource, whole or in one namespace.
func (r Resource) path(namespace string) string {
	p := "/api/" + r.Version
	if r.Group != "" {
		p = "/apis/" + r.Group + "/" + r.Version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + r.Resource
}

// source reads one resource from the upstream, with the proxy's own credentials.
type source struct {
	client   *http.Client
	base     *url.URL
	resource Resource
	// token is [Config].ContinueToken.
	token func(revision uint64, start string) string
}

const (
	// answerTimeout bounds a list, and the time until a watch begins to answer.
	answerTimeout = 60 * time.Second
	// maxList bounds the body of one page.
	maxList = 1 << 30
	// initialLimit is the page size of a paginated initial load. For every page, kube-apiserver 1.36
	// walks all objects that come after it, so small pages are expensive.
	initialLimit = 2000
	// probeNamespace and probeName address one key that cannot exist: no name may hold a '~'.
	probeNamespace = "default"
	probeName      = "~listproxy-probe"
)

func (s *source) encoding() wire.Encoding { return wire.EncodingOf(s.resource.Representation) }

// answered reports whether err is the upstream's answer with one of these status codes.
func answered(err error, codes ...int) bool {
	var answer *wire.AnswerError
	return errors.As(err, &answer) && slices.Contains(codes, answer.Code)
}

// isAnswer reports whether err is an answer of the upstream, or of somebody before it.
func isAnswer(err error) bool {
	_, is := errors.AsType[*wire.AnswerError](err)
	return is
}

// wanted returns the pause after an error: at least as long as the upstream asks for.
func wanted(pause time.Duration, err error) time.Duration {
	if answer, ok := errors.AsType[*wire.AnswerError](err); ok {
		return max(pause, answer.RetryAfter)
	}
	return pause
}

// get sends a request and returns the answer if it is a 200.
func (s *source) get(ctx context.Context, namespace, accept string, query url.Values) (*http.Response, error) {
	u := s.base.JoinPath(s.resource.path(namespace))
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the upstream for %s: %w", s.resource, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, wire.ReadAnswerError(resp)
}

// answeredList is a list of the upstream, as it came and taken apart.
type answeredList struct {
	wire.List
	body   []byte
	header http.Header
}

// list reads a whole list into memory.
func (s *source) list(ctx context.Context, namespace string, query url.Values) (l answeredList, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	resp, err := s.get(ctx, namespace, s.resource.Representation.AcceptList(), query)
	if err != nil {
		return l, err
	}
	defer resp.Body.Close()
	l.header = resp.Header
	if l.body, err = io.ReadAll(io.LimitReader(resp.Body, maxList+1)); err != nil {
		return l, fmt.Errorf("reading a list of %s: %w", s.resource, err)
	}
	if len(l.body) > maxList {
		return l, fmt.Errorf("a list of %s has more than %d bytes", s.resource, maxList)
	}
	if l.List, err = s.encoding().List(l.body); err != nil {
		return l, fmt.Errorf("%w: %w", wire.ErrForm, err)
	}
	return l, nil
}

// insistences is how often a list is tried while the upstream is busy, if it must not fail.
const insistences = 6

// insist is list, tried again after a pause if the upstream answers that it is too busy. It is for
// lists whose failure would cost the upstream more than a repetition.
func (s *source) insist(ctx context.Context, namespace string, query url.Values) (answeredList, error) {
	pause := resumeBackoff()
	for try := 1; ; try++ {
		l, err := s.list(ctx, namespace, query)
		if try == insistences || !troubled(err) || !clock.Sleep(ctx, wanted(pause.Step(), err)) {
			return l, err
		}
	}
}

// probe reads a single name that cannot exist, with MostRecent. It costs the upstream the lookup of
// one key, and makes its watch cache ask etcd for the current revision, which the answer has. (A
// list with limit=1 would cost more: for every page, kube-apiserver 1.36 walks all objects that
// come after it.) It fails with a 400 if the upstream does not know one of the fields.
func (s *source) probe(ctx context.Context, fieldNames ...string) (body []byte, revision uint64, err error) {
	namespace := ""
	if s.resource.Namespaced {
		namespace = probeNamespace
	}
	var selector strings.Builder
	selector.WriteString(wire.NameField + "=" + probeName)
	for _, name := range fieldNames {
		selector.WriteString("," + name + "=")
	}
	l, err := s.list(ctx, namespace, url.Values{"fieldSelector": {selector.String()}})
	if err != nil {
		return nil, 0, err
	}
	if l.Meta.Revision == 0 {
		return nil, 0, fmt.Errorf("%w: a list without resourceVersion", wire.ErrForm)
	}
	return l.body, l.Meta.Revision, nil
}

// watch begins a watch. Reading it goes on until ctx ends or the upstream ends it.
func (s *source) watch(ctx context.Context, namespace string, query url.Values, timeout time.Duration) (*stream, error) {
	query.Set("watch", "true")
	// The timeout is always sent: without it, the upstream chooses how long a watch lasts.
	timeout = timeout.Truncate(time.Second)
	query.Set("timeoutSeconds", strconv.Itoa(int(timeout/time.Second)))
	ctx, cancel := context.WithCancel(ctx)
	asked, late := time.Now(), time.AfterFunc(answerTimeout, cancel)
	resp, err := s.get(ctx, namespace, s.resource.Representation.AcceptWatch(), query)
	if !late.Stop() && err == nil {
		resp.Body.Close()
		err = fmt.Errorf("the upstream did not begin to answer a watch of %s within %v", s.resource, answerTimeout)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	stream := newStream(ctx, cancel, s.encoding(), resp.Body, clock.Lifetime{Asked: asked, Answered: time.Now(), Timeout: timeout})
	stream.contentType, stream.compressed = resp.Header.Get("Content-Type"), resp.Uncompressed
	return stream, nil
}
