package proxytest

import (
	"io"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// AnswerReview answers a review as kube-apiserver does: with what was asked, and a
// status.
func AnswerReview(r *http.Request, status authorizationv1.SubjectAccessReviewStatus) (*http.Response, error) {
	var review authorizationv1.SelfSubjectAccessReview
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = utiljson.Unmarshal(body, &review)
	}
	if err != nil {
		return nil, err
	}
	review.Status = status
	body, err = utiljson.Marshal(review)
	if err != nil {
		return nil, err
	}
	return JSONResponse(r, http.StatusCreated, string(body)), nil
}
