package limits

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// foreignChain is a client's certificate of P-521 and those up to a CA that nobody trusts, each signed by the
// next.
func foreignChain(t *testing.T, n int) tls.Certificate {
	t.Helper()
	var chain tls.Certificate
	var issuer *x509.Certificate
	var by *ecdsa.PrivateKey
	for i := n; i > 0; i-- {
		key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i)), Subject: pkix.Name{CommonName: fmt.Sprintf("foreign %d", i)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: i > 1, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if by == nil {
			issuer, by = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		if issuer, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		by = key
		chain.Certificate = append([][]byte{der}, chain.Certificate...)
		chain.PrivateKey = key
	}
	return chain
}

// cpu is what the process has taken so far.
func (r *rig) cpu() time.Duration {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.proxy.AdminURL()+"/metrics", http.NoBody)
	r.must(err)
	res, err := http.DefaultClient.Do(req)
	r.must(err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	r.must(err)
	found := regexp.MustCompile(`(?m)^process_cpu_seconds_total(?:\{[^}]*\})? (\S+)$`).FindSubmatch(text)
	if found == nil {
		r.Fatal("no metric of CPU")
	}
	seconds, err := strconv.ParseFloat(string(found[1]), 64)
	r.must(err)
	return time.Duration(seconds * float64(time.Second))
}

// TestForeignChains: what requests with them cost, and that they are 401.
func TestForeignChains(t *testing.T) {
	r := newRig(t, "--client-ca-file", plane.CAPath())
	r.must(warm(r))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(r.proxy.CA())
	for _, n := range []int{99, 10} {
		chain := foreignChain(t, n)
		const connections, requests = 10, 10
		before := r.cpu()
		for i := range connections {
			conn, err := r.bare(i)
			r.must(err)
			client := tls.Client(conn, &tls.Config{
				RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
				// Whatever CAs the server names.
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &chain, nil },
			})
			answers := bufio.NewReader(client)
			for range requests {
				_, err = io.WriteString(client, "GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
				r.must(err)
				res, err := http.ReadResponse(answers, nil)
				r.must(err)
				_, err = io.Copy(io.Discard, res.Body)
				r.must(err)
				r.must(res.Body.Close())
				if res.StatusCode != http.StatusUnauthorized {
					t.Fatal(res.Status)
				}
			}
		}
		took := r.cpu() - before
		r.say("a chain of %d certificates of P-521 that leads to no CA: %.1f ms of CPU for each of %d requests on %d connections, handshakes included",
			n, took.Seconds()*1000/connections/requests, connections*requests, connections)
	}
}
