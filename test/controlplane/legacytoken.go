package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/listproxy/listproxy/test/harness/secrets"
)

// CreateLegacyToken creates a service account and returns a token for it as Kubernetes generated them
// before 1.24: it never expires, and is in a Secret that the account names. With every answer to it
// kube-apiserver sends a Warning. The namespace must exist; binding rights to the account is the
// caller's part.
func (cp *ControlPlane) CreateLegacyToken(ctx context.Context, namespace, name string) (string, error) {
	of, secret := "/api/v1/namespaces/"+url.PathEscape(namespace), name+"-token"
	answer, err := cp.request(ctx, Admin, http.MethodPost, of+"/serviceaccounts", map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": name},
		"secrets": []any{map[string]any{"name": secret}},
	})
	if err != nil {
		return "", fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	var account struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(answer, &account); err != nil {
		return "", fmt.Errorf("decode service account %s/%s: %w", namespace, name, err)
	}
	const claim = "kubernetes.io/serviceaccount/"
	token, err := cp.sign(map[string]any{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:" + namespace + ":" + name,
		claim + "namespace": namespace, claim + "secret.name": secret,
		claim + "service-account.name": name, claim + "service-account.uid": account.Metadata.UID,
	})
	if err != nil {
		return "", fmt.Errorf("sign a token of service account %s/%s: %w", namespace, name, err)
	}
	secrets.Suite.Add("the legacy token of service account "+namespace+"/"+name, token)
	_, err = cp.request(ctx, Admin, http.MethodPost, of+"/secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
		"metadata": map[string]any{"name": secret, "annotations": map[string]any{
			"kubernetes.io/service-account.name": name, "kubernetes.io/service-account.uid": account.Metadata.UID,
		}},
		"stringData": map[string]any{"token": token},
	})
	if err != nil {
		return "", fmt.Errorf("create the secret of service account %s/%s: %w", namespace, name, err)
	}
	return token, nil
}

// sign makes a JSON web token with the key for service accounts.
func (cp *ControlPlane) sign(claims map[string]any) (string, error) {
	file, err := os.ReadFile(filepath.Join(cp.dir, accountKeyFile))
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(file)
	if block == nil {
		return "", fmt.Errorf("%s is no PEM file", accountKeyFile)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return "", err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return "", fmt.Errorf("%s is a %T", accountKeyFile, parsed)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"ES256"}`)) + "." + encode(payload)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature), nil
}
