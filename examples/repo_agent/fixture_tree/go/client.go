// Package jobq talks to the HTTP interface of a job queue.
package jobq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// ErrLeaseExpired says that the job belongs to somebody else by now.
var ErrLeaseExpired = errors.New("jobq: lease expired")

// maxResponseBytes bounds what is read of an answer.
const maxResponseBytes = 1 << 20

// Job is a claimed piece of work.
type Job struct {
	ID      int64           `json:"job_id"`
	Kind    string          `json:"kind"`
	Payload json.RawMessage `json:"payload"`
	Token   string          `json:"token"`
}

// Client is safe for use by many goroutines.
type Client struct {
	base   string
	secret string
	http   *http.Client
}

// NewClient makes a client with a timeout of 15 seconds for each request.
func NewClient(base, secret string) *Client {
	return &Client{base: base, secret: secret, http: &http.Client{Timeout: 15 * time.Second}}
}

// Claim returns the next job, or nil when none is due.
func (c *Client) Claim(ctx context.Context) (*Job, error) {
	var job Job
	if err := c.post(ctx, "/claim", struct{}{}, &job); err != nil {
		return nil, err
	}
	if job.ID == 0 {
		return nil, nil
	}
	return &job, nil
}

// Complete records that the job is done.
func (c *Client) Complete(ctx context.Context, job *Job) error {
	return c.post(ctx, "/complete", map[string]any{"job_id": job.ID, "token": job.Token}, nil)
}

// Fail records why the job failed.
func (c *Client) Fail(ctx context.Context, job *Job, cause error) error {
	body := map[string]any{"job_id": job.ID, "token": job.Token, "error": cause.Error()}
	return c.post(ctx, "/fail", body, nil)
}

func (c *Client) post(ctx context.Context, path string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.secret)
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusConflict {
		return ErrLeaseExpired
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("jobq: %s: %s", resp.Status, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}
