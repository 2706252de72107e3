package harness

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// introducePatience bounds an introduction: kube-apiserver may be away.
const introducePatience = 5 * time.Second

// Introduce has callers do what real clients begin with, a request that is no list, so that listproxy knows
// whom kube-apiserver accepts: it forwards lists of all others (unknown-caller). Callers whom
// kube-apiserver does not accept, or cannot say so of now, stay unknown. Who has no token needs none.
//
// RESTConfig and TunnelConfig introduce their callers. It is for those whose tokens a test puts into requests by
// itself.
func (p *Proxy) Introduce(callers ...*rest.Config) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		// Tests may give it any certificate.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, // #nosec G402 -- a process of this one, on loopback
	}}
	for _, caller := range callers {
		if caller.BearerToken != "" {
			introduce(client, p.URL()+"/version", caller.BearerToken)
		}
	}
}

// introduce sends a request. What becomes of it shows in the caller's next list.
func introduce(client *http.Client, url, token string) {
	ctx, cancel := context.WithTimeout(context.Background(), introducePatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if resp, err := client.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}
