package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnswerError is an answer of the upstream that is not a 200.
type AnswerError struct {
	Code    int
	Message string
	// RetryAfter is how long the upstream wants to be left alone; 0 if it does not say.
	RetryAfter time.Duration
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the upstream answered %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// StatusMessage is the message of a Status in either encoding, or "".
func StatusMessage(body []byte) string {
	if e, err := openEnvelope(body); err == nil {
		status, _ := protobufStatus(e) // without a message it is as good as none
		return status.message
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil {
		return status.Message
	}
	return ""
}
