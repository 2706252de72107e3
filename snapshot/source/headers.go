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

// Headers returns the headers of a list that every caller gets with such a list. kube-apiserver also sends warnings about
// the caller's credentials, for example about a token from a Secret. Here the caller is listproxy. So if the list has
// warnings, Headers asks the upstream for those about listproxy's credentials (one request), and leaves them out.
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

// credentialWarnings returns the warnings about listproxy's own credentials. An answer to GET
// /version has just these: it is no resource that could be deprecated. A 403 from the API server has them as well; a 429
// or 5xx may come from a load balancer, and is an error.
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
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError {
		return nil, wire.ReadAnswerError(resp)
	}
	return resp.Header.Values("Warning"), nil
}
