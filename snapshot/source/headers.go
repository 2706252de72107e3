package source

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// listHeaders are the headers, in addition to Content-Type and Audit-Id, that kube-apiserver sends with a list to every
// caller: Strict-Transport-Security with --strict-transport-security-directives, Warning if the resource is deprecated.
var listHeaders = []string{"Cache-Control", "Strict-Transport-Security", "Warning"}

// Headers returns the headers of l that every caller gets with such a list. kube-apiserver also sends warnings about the
// caller's credentials, for example about a token from a Secret. So warnings about listproxy's own credentials are left
// out.
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
	own, err := s.credentialWarnings(ctx)
	if err != nil {
		return nil, err
	}
	kept["Warning"] = slices.DeleteFunc(kept["Warning"], func(w string) bool { return slices.Contains(own, w) })
	if len(kept["Warning"]) == 0 {
		delete(kept, "Warning")
	}
	return kept, nil
}

// credentialWarnings returns the warnings about listproxy's own credentials. The upstream sends them with /version, too,
// which no other warning concerns: it is not a resource that could be deprecated. A 403 from the API server has them as
// well; a 429 or 5xx may come from a load balancer, and is an error.
func (s *Source) credentialWarnings(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Base.JoinPath("/version").String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the upstream for warnings about listproxy's credentials: %w", err)
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError {
		defer func() { _ = resp.Body.Close() }()
		return nil, wire.ReadAnswerError(resp)
	}
	return resp.Header.Values("Warning"), resp.Body.Close()
}
