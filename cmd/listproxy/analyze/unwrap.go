package analyze

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// maxDepth is the largest number of objects, lists and strings around an event.
const maxDepth = 8

// eachEvent calls visit for every event in a line, and reports whether there is any. Exporters of logs write an event
// inside an object, a list, or a string that is JSON itself. Before the JSON there may be words, such as a time, and
// after it more JSON.
func eachEvent(line []byte, visit func(*auditEvent)) bool { return eachEventInText(line, 0, visit) }

// eachEventInText is [eachEvent] for a text at a depth.
func eachEventInText(text []byte, depth int, visit func(*auditEvent)) (found bool) {
	start := bytes.IndexAny(text, "{[")
	if start < 0 || !mayHaveEvent(text, depth) {
		return false
	}
	// Nearly every line is a plain event. The decoder below would take twice the time.
	if visitEvent(text[start:], visit) {
		return true
	}
	values := json.NewDecoder(bytes.NewReader(text[start:]))
	for {
		var value json.RawMessage
		if values.Decode(&value) != nil { // the end, or something that is not JSON
			return found
		}
		if eachEventInValue(value, depth, visit) {
			found = true
		}
	}
}

// eachEventInValue is [eachEvent] for a JSON value at a depth. It ignores errors of json.Unmarshal, since the decoder
// has already checked that the value is JSON.
func eachEventInValue(value json.RawMessage, depth int, visit func(*auditEvent)) (found bool) {
	if !mayHaveEvent(value, depth) {
		return false
	}
	var elements []json.RawMessage
	switch value[0] {
	case '{':
		if visitEvent(value, visit) {
			return true
		}
		var members map[string]json.RawMessage
		_ = json.Unmarshal(value, &members)
		elements = slices.Collect(maps.Values(members))
	case '[':
		_ = json.Unmarshal(value, &elements)
	case '"':
		var text string
		_ = json.Unmarshal(value, &text)
		return eachEventInText([]byte(text), depth+1, visit)
	}
	for _, element := range elements {
		if eachEventInValue(element, depth+1, visit) {
			found = true
		}
	}
	return found
}

// visitEvent calls visit if the value is an event, and reports whether it is.
func visitEvent(value []byte, visit func(*auditEvent)) bool {
	var e auditEvent
	if json.Unmarshal(value, &e) != nil || !e.isEvent() {
		return false
	}
	visit(&e)
	return true
}

// mayHaveEvent reports whether there may be an event in a text at this depth. It is fast: most texts have none.
func mayHaveEvent(text []byte, depth int) bool {
	return depth <= maxDepth && bytes.Contains(text, []byte(auditv1.GroupName))
}
