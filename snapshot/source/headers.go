package source

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// listHeaders are the headers that kube-apiserver sends with a list to every caller, besides Content-Type and Audit-Id.
// Cache-Control always comes, Strict-Transport-Security with --strict-transport-security-directives, and Warning if the
// resource is deprecated.
var listHeaders = []string{"Cache-Control", "Strict-Transport-Security", "Warning"}

// Headers returns the listHeaders of a list, without warnings that are for listproxy alone: kube-apiserver also warns each
// caller about its credentials, for example about a token from a Secret. So if the list has warnings, Headers sends one
// request to learn the warnings about listproxy's own credentials, and leaves these out.
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
// which has no other warnings: /version is no resource that could be deprecated. kube-apiserver gives these warnings when it
// authenticates a request, so a 403 or a 404 has them as well. A 401 may lack them, and a 429 or 5xx may come from a load
// balancer: these are errors.
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
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return nil, wire.ReadAnswerError(resp)
	}
	return resp.Header.Values("Warning"), nil
}
