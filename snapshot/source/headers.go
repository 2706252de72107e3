package source

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// listHeaders are the headers that kube-apiserver sends to every caller of a list, besides Content-Type and Audit-Id:
// Cache-Control always, Strict-Transport-Security with --strict-transport-security-directives, and Warning if the resource is
// deprecated.
var listHeaders = []string{"Cache-Control", "Strict-Transport-Security", "Warning"}

// Headers returns the listHeaders of a list, as any caller would get them. kube-apiserver also sends warnings about
// listproxy's own credentials with the list, for example about a token from a Secret. Headers leaves these warnings out. If
// the list has any warnings, Headers sends one request to learn which of them are about the credentials.
func (s *Source) Headers(ctx context.Context, list ListResponse) (http.Header, error) {
	kept := http.Header{}
	for _, name := range listHeaders {
		if values := list.Header.Values(name); len(values) > 0 {
			kept[name] = slices.Clone(values)
		}
	}
	if len(kept["Warning"]) == 0 {
		return kept, nil
	}
	ownWarnings, err := s.credentialWarnings(ctx)
	if err != nil {
		return nil, err
	}
	kept["Warning"] = slices.DeleteFunc(kept["Warning"], func(w string) bool { return slices.Contains(ownWarnings, w) })
	if len(kept["Warning"]) == 0 {
		delete(kept, "Warning")
	}
	return kept, nil
}

// credentialWarnings returns the warnings about listproxy's own credentials. It reads them from an answer to GET /version,
// which has no other warnings: /version is no resource that could be deprecated.
//
// kube-apiserver adds these warnings when it authenticates a request, so even a 403 or a 404 has them.
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
	defer resp.Body.Close()
	// These answers may lack the warnings: a 401 has none, and a 429 or 5xx may come from a load balancer.
	code := resp.StatusCode
	if code == http.StatusUnauthorized || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError {
		return nil, wire.ReadAnswerError(resp)
	}
	return resp.Header.Values("Warning"), nil
}
