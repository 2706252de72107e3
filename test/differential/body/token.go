// Package body reads and compares the bodies of answers: the metadata of a list in any
// representation, and continue tokens.
package body

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// Token is the inside of a continue token.
type Token struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

// DecodeToken reads a token as kube-apiserver writes it.
func DecodeToken(text string) (Token, error) {
	var t Token
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return t, fmt.Errorf("a continue token: %w", err)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return t, fmt.Errorf("a continue token: %w", err)
	}
	return t, nil
}

// Encode writes the token as kube-apiserver does.
func (t Token) Encode() string {
	data, err := json.Marshal(t)
	if err != nil {
		return "" // two strings and a number have a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// SameToken reports whether two tokens go on at the same place. A page that kube-apiserver read
// from etcd has a token without the leading slash in start; nothing else may differ.
func SameToken(a, b string) bool {
	ta, errA := DecodeToken(a)
	tb, errB := DecodeToken(b)
	if errA != nil || errB != nil {
		return a == b
	}
	ta.Start, tb.Start = strings.TrimPrefix(ta.Start, "/"), strings.TrimPrefix(tb.Start, "/")
	return ta == tb
}
