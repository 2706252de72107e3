package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/harness/secrets"
)

// CreateServiceAccountToken creates a service account, unless it exists, and returns a token
// for it from the TokenRequest API, valid for an hour. The namespace must exist; binding
// rights to the account is the caller's part.
func (cp *ControlPlane) CreateServiceAccountToken(ctx context.Context, namespace, name string) (string, error) {
	client, err := kubernetes.NewForConfig(cp.RESTConfig(Admin))
	if err != nil {
		return "", err
	}
	accounts := client.CoreV1().ServiceAccounts(namespace)
	_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	asked := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
	made, err := accounts.CreateToken(ctx, name, asked, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of service account %s/%s: %w", namespace, name, err)
	}
	secrets.Suite.Add("the token of service account "+namespace+"/"+name, made.Status.Token)
	return made.Status.Token, nil
}

// CreateLegacyToken creates a service account and returns a token for it as Kubernetes generated them
// before 1.24: it never expires, and is in a Secret that the account names. With every answer to it
// kube-apiserver sends a Warning. The namespace must exist; binding rights to the account is the
// caller's part.
func (cp *ControlPlane) CreateLegacyToken(ctx context.Context, namespace, name string) (string, error) {
	client, err := kubernetes.NewForConfig(cp.RESTConfig(Admin))
	if err != nil {
		return "", err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name + "-token"}, Type: corev1.SecretTypeServiceAccountToken}
	account, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Secrets: []corev1.ObjectReference{{Name: secret.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	const claim = "kubernetes.io/serviceaccount/"
	token, err := cp.sign(map[string]any{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:" + namespace + ":" + name,
		claim + "namespace": namespace, claim + "secret.name": secret.Name,
		claim + "service-account.name": name, claim + "service-account.uid": account.UID,
	})
	if err != nil {
		return "", err
	}
	secrets.Suite.Add("the legacy token of service account "+namespace+"/"+name, token)
	secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: name, corev1.ServiceAccountUIDKey: string(account.UID)}
	secret.StringData = map[string]string{corev1.ServiceAccountTokenKey: token}
	_, err = client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	return token, err
}

// sign makes a JSON web token with the key for service accounts.
func (cp *ControlPlane) sign(claims map[string]any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"ES256"}`)) + "." + encode(payload)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, cp.credentials.accountKey, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature), nil
}
