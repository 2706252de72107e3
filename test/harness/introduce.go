package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// introducePatience bounds an introduction: kube-apiserver may be away.
const introducePatience = 5 * time.Second

// Introduce has callers do what real clients begin with, a request that is no list, so that
// listproxy knows whom kube-apiserver accepts: it forwards lists of all others (unknown-caller).
// Whoever has no token needs none. An answer of any code is no error: callers whom kube-apiserver
// does not accept, or cannot say so of now, stay unknown.
//
// RESTConfig and TunnelConfig introduce their callers. Introduce is for those whose tokens a test
// puts into requests by itself.
func (p *Proxy) Introduce(callers ...*rest.Config) error {
	client := &http.Client{Timeout: introducePatience, Transport: &http.Transport{
		DisableKeepAlives: true,
		// Tests may give it any certificate.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, // #nosec G402 -- a process of this one, on loopback
	}}
	var errs []error
	for _, caller := range callers {
		if caller.BearerToken != "" {
			errs = append(errs, introduce(client, p.URL()+"/version", caller.BearerToken))
		}
	}
	return errors.Join(errs...)
}

// introduce sends a request. What becomes of it shows in the caller's next list.
func introduce(client *http.Client, url, token string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("introducing a caller to listproxy: %w", err)
	}
	return resp.Body.Close()
}

// introduced adds what the process must not emit of a client, and introduces the client. In vain
// while nobody answers: that is told, for a test that then wonders about unknown-caller.
func (p *Proxy) introduced(client *rest.Config) {
	addClient("a client's", client)
	if err := p.Introduce(client); err != nil {
		Log(err.Error())
	}
}
