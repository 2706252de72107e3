package proxytest

import (
	"bytes"
	"io"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/listproxy/listproxy/test/inmemory"
)

// ReadReview returns the spec of the review in r. The body of r can be read again.
func ReadReview(r *http.Request) (asked authorizationv1.SelfSubjectAccessReviewSpec, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return asked, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var review authorizationv1.SelfSubjectAccessReview
	err = utiljson.Unmarshal(body, &review)
	return review.Spec, err
}

// AnswerReview answers a review as kube-apiserver does: with the review and a status.
func AnswerReview(r *http.Request, status authorizationv1.SubjectAccessReviewStatus) (*http.Response, error) {
	var review authorizationv1.SelfSubjectAccessReview
	return answerCreated(r, &review, func() { review.Status = status })
}

// AnswerWhoAmI answers a SelfSubjectReview as kube-apiserver does.
func AnswerWhoAmI(r *http.Request, who authenticationv1.UserInfo) (*http.Response, error) {
	var review authenticationv1.SelfSubjectReview
	return answerCreated(r, &review, func() { review.Status.UserInfo = who })
}

// answerCreated answers 201 with the request's object, which is decoded into object and then changed.
func answerCreated(r *http.Request, object any, change func()) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = utiljson.Unmarshal(body, object)
	}
	if err != nil {
		return nil, err
	}
	change()
	if body, err = utiljson.Marshal(object); err != nil {
		return nil, err
	}
	return inmemory.Answer(r, http.StatusCreated, string(body)), nil
}
