package source

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// listHeaders are the headers, besides Content-Type and Audit-Id, that kube-apiserver sends with a list
// whoever asks for it: Strict-Transport-Security if it has --strict-transport-security-directives,
// Warning if the resource is deprecated.
var listHeaders = []string{"Cache-Control", "Strict-Transport-Security", "Warning"}

// Headers returns the headers of a list that every caller gets with it. kube-apiserver also warns of
// credentials, such as tokens of Secrets that it has generated itself: warnings of listproxy's own
// credentials are left out.
func (s *Source) Headers(ctx context.Context, l List) (http.Header, error) {
	kept := http.Header{}
	for _, name := range listHeaders {
		if values := l.Header.Values(name); len(values) > 0 {
			kept[name] = slices.Clone(values)
		}
	}
	if len(kept["Warning"]) == 0 {
		return kept, nil
	}
	own, err := s.ownWarnings(ctx)
	if err != nil {
		return nil, err
	}
	kept["Warning"] = slices.DeleteFunc(kept["Warning"], func(w string) bool { return slices.Contains(own, w) })
	if len(kept["Warning"]) == 0 {
		delete(kept, "Warning")
	}
	return kept, nil
}

// ownWarnings returns the warnings about listproxy's own credentials. They come with /version, too, which is no resource
// that could be deprecated. The answer may be a refusal of the API server, but not one of a load balancer before it.
func (s *Source) ownWarnings(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Base.JoinPath("/version").String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the upstream what it warns listproxy of: %w", err)
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError {
		defer func() { _ = resp.Body.Close() }()
		return nil, wire.ReadAnswerError(resp)
	}
	return resp.Header.Values("Warning"), resp.Body.Close()
}
