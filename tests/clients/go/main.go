// A client of Turnlog in Go, with the options that a channel has by default. One command for each thing that a test
// asks of it: `probe COMMAND JSON`. It answers with one JSON object; where a call fails, with what the status says.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "turnlog.dev/probe/gen/turnlog/v1"
)

type asked struct {
	Address    string  `json:"address"`
	Key        string  `json:"key"`
	Deployment string  `json:"deployment"`
	Author     string  `json:"author"`
	Session    string  `json:"session"`
	Run        string  `json:"run"`
	Text       string  `json:"text"`
	After      uint64  `json:"after"`
	PageSize   int32   `json:"page_size"`
	Cut        int     `json:"cut"`
	Follows    int     `json:"follows"`
	Parts      int     `json:"parts"`
	Labels     int     `json:"labels"`
	Seconds    float64 `json:"seconds"`
}

type answer = map[string]any

type probe struct {
	asked
	ctx      context.Context
	conn     *grpc.ClientConn
	sessions pb.SessionServiceClient
	events   pb.EventServiceClient
}

var commands = map[string]func(*probe) (answer, error){
	"turn":    (*probe).turn,
	"list":    (*probe).list,
	"follow":  (*probe).follow,
	"crowd":   (*probe).crowd,
	"refused": (*probe).refused,
	"idle":    (*probe).idle,
}

func main() {
	p := &probe{}
	must(json.Unmarshal([]byte(os.Args[2]), &p.asked))
	p.ctx = metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+p.Key)
	p.conn = p.channel()
	p.sessions = pb.NewSessionServiceClient(p.conn)
	p.events = pb.NewEventServiceClient(p.conn)
	said, err := commands[os.Args[1]](p)
	if err != nil {
		said = answer{"error": failure(err)}
	}
	must(json.NewEncoder(os.Stdout).Encode(said))
}

func (p *probe) channel(options ...grpc.DialOption) *grpc.ClientConn {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(p.Address, options...)
	must(err)
	return conn
}

// turn creates a Session and appends its first message.
func (p *probe) turn() (answer, error) {
	made, err := p.sessions.CreateSession(p.ctx, &pb.CreateSessionRequest{
		RequestId: fresh(), AgentDeploymentId: p.Deployment,
	})
	if err != nil {
		return nil, err
	}
	p.Session = made.Session.SessionId
	added, err := p.append(p.ctx, said(p.Text))
	if err != nil {
		return nil, err
	}
	return answer{"session": p.Session, "run": added.RunId, "seq": added.Seq}, nil
}

func (p *probe) append(ctx context.Context, parts ...*pb.ContentPart) (*pb.AppendEventResponse, error) {
	return p.events.AppendEvent(ctx, &pb.AppendEventRequest{
		RequestId:  fresh(),
		SessionId:  p.Session,
		AuthoredBy: p.Author,
		CausedBy:   &pb.CausedBy{Kind: pb.CausedBy_KIND_API},
		Event:      &pb.AppendEventRequest_UserMessage{UserMessage: &pb.UserMessage{Parts: parts}},
	})
}

// list reads the whole log by pages.
func (p *probe) list() (answer, error) {
	events, pages, token := []answer{}, 0, ""
	for {
		page, err := p.events.ListEvents(p.ctx, &pb.ListEventsRequest{
			SessionId: p.Session, PageSize: p.PageSize, PageToken: token,
		})
		if err != nil {
			return nil, err
		}
		pages++
		for _, event := range page.Events {
			events = append(events, told(event))
		}
		if token = page.NextPageToken; token == "" {
			return answer{"events": events, "pages": pages}, nil
		}
	}
}

// follow reads from a cursor to the end of a turn. With `cut` it hangs up after so many events and resumes.
func (p *probe) follow() (answer, error) {
	before := []answer{}
	if p.Cut > 0 {
		var err error
		if before, _, err = p.read(p.Cut); err != nil {
			return nil, err
		}
		p.After = before[len(before)-1]["seq"].(uint64)
	}
	after, end, err := p.read(0)
	if err != nil {
		return nil, err
	}
	return answer{"before": before, "events": after, "end": end}, nil
}

func (p *probe) read(atMost int) ([]answer, string, error) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	stream, err := p.events.FollowEvents(ctx, &pb.FollowEventsRequest{
		SessionId: p.Session,
		AfterSeq:  p.After,
		Until:     &pb.FollowUntil{Boundary: pb.FollowUntil_BOUNDARY_TURN, RunId: p.Run},
	})
	if err != nil {
		return nil, "", err
	}
	events := []answer{}
	for {
		frame, err := stream.Recv()
		if err != nil {
			return nil, "", err
		}
		for _, event := range frame.GetEvents().GetEvents() {
			events = append(events, told(event))
			if len(events) == atMost {
				return events, "", nil
			}
		}
		if end := frame.GetEnd(); end != nil {
			// What comes after must be the end of the stream, with OK.
			if _, err = stream.Recv(); err != io.EOF {
				return nil, "", fmt.Errorf("after the end came %v", err)
			}
			return events, end.Reason.String(), nil
		}
	}
}

// crowd opens many follows on one channel, appends beside them, and waits until each has the message.
func (p *probe) crowd() (answer, error) {
	caughtUp, arrived := make(chan error), make(chan error)
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	for range p.Follows {
		stream, err := p.events.FollowEvents(ctx, &pb.FollowEventsRequest{SessionId: p.Session})
		if err != nil {
			return nil, err
		}
		go func() {
			caughtUp <- until(stream, func(frame *pb.FollowEventsResponse) bool { return frame.GetCaughtUp() != nil })
			arrived <- until(stream, func(frame *pb.FollowEventsResponse) bool {
				for _, event := range frame.GetEvents().GetEvents() {
					if event.Type == "user.message" {
						return true
					}
				}
				return false
			})
		}()
	}
	if err := all(caughtUp, p.Follows); err != nil {
		return nil, err
	}
	deadline, done := context.WithTimeout(p.ctx, seconds(p.Seconds))
	defer done()
	added, err := p.append(deadline, said("to all"))
	if err != nil {
		return nil, err
	}
	if err := all(arrived, p.Follows); err != nil {
		return nil, err
	}
	return answer{"seq": added.Seq, "arrived": p.Follows}, nil
}

func until(stream grpc.ServerStreamingClient[pb.FollowEventsResponse], seen func(*pb.FollowEventsResponse) bool) error {
	for {
		frame, err := stream.Recv()
		if err != nil || seen(frame) {
			return err
		}
	}
}

func all(results chan error, count int) error {
	for range count {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

// refused sends a request with many faults.
func (p *probe) refused() (answer, error) {
	if p.Labels > 0 {
		labels := map[string]string{}
		for number := range p.Labels {
			labels[strings.Repeat("ключ", 250)+strconv.Itoa(number)] = "value"
		}
		_, err := p.sessions.CreateSession(p.ctx, &pb.CreateSessionRequest{
			RequestId: fresh(), AgentDeploymentId: p.Deployment, Labels: labels,
		})
		return answer{}, err
	}
	parts := []*pb.ContentPart{}
	for range p.Parts {
		parts = append(parts, &pb.ContentPart{})
	}
	_, err := p.append(p.ctx, parts...)
	return answer{}, err
}

// idle keeps two channels alive by pings, one with a follow and one without any call, and tells whether they stayed up.
func (p *probe) idle() (answer, error) {
	pings := grpc.WithKeepaliveParams(keepalive.ClientParameters{
		Time: 10 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true,
	})
	busy, bare := p.channel(pings), p.channel(pings)
	stream, err := pb.NewEventServiceClient(busy).FollowEvents(p.ctx, &pb.FollowEventsRequest{SessionId: p.Session})
	if err != nil {
		return nil, err
	}
	// The first frame has come when the connection is up.
	if _, err = stream.Recv(); err != nil {
		return nil, err
	}
	server := pb.NewServerServiceClient(bare)
	if _, err = server.GetServerInfo(p.ctx, &pb.GetServerInfoRequest{}); err != nil {
		return nil, err
	}
	changed := make(chan string, 2)
	waited, cancel := context.WithTimeout(context.Background(), seconds(p.Seconds))
	defer cancel()
	for _, conn := range []*grpc.ClientConn{busy, bare} {
		go func() {
			if conn.WaitForStateChange(waited, connectivity.Ready) {
				changed <- conn.GetState().String()
			} else {
				changed <- ""
			}
		}()
	}
	lost := []string{}
	for range 2 {
		if state := <-changed; state != "" {
			lost = append(lost, state)
		}
	}
	_, err = server.GetServerInfo(p.ctx, &pb.GetServerInfoRequest{})
	return answer{"lost": lost}, err
}

// told is an event as the tests compare it. What the contract calls unknown has no payload.
func told(event *pb.Event) answer {
	shown := answer{
		"seq": event.Seq, "event_id": event.EventId, "type": event.Type, "payload": "", "ignorable": event.Ignorable,
		"time": fmt.Sprintf("%d.%09d", event.CreateTime.GetSeconds(), event.CreateTime.GetNanos()),
	}
	message := event.ProtoReflect()
	if arm := message.WhichOneof(message.Descriptor().Oneofs().ByName("payload")); arm != nil {
		shown["payload"] = string(arm.Name())
	}
	switch payload := event.Payload.(type) {
	case *pb.Event_UserMessage:
		shown["text"] = text(payload.UserMessage.Parts)
	case *pb.Event_AgentMessage:
		shown["text"] = text(payload.AgentMessage.Parts)
	case *pb.Event_AgentToolUse:
		shown["arguments"] = payload.AgentToolUse.Arguments.AsMap()
	case *pb.Event_ModelCalled:
		shown["input_tokens"] = strconv.FormatInt(payload.ModelCalled.Usage.InputTokens, 10)
	case *pb.Event_RunFailed:
		shown["error"] = payload.RunFailed.Error.Message
	}
	return shown
}

func text(parts []*pb.ContentPart) string {
	var whole strings.Builder
	for _, part := range parts {
		whole.WriteString(part.GetText())
	}
	return whole.String()
}

func said(text string) *pb.ContentPart {
	return &pb.ContentPart{Part: &pb.ContentPart_Text{Text: text}}
}

// failure is a status with its details decoded.
func failure(err error) answer {
	found, _ := status.FromError(err)
	shown := answer{"code": int(found.Code()), "message": found.Message(), "fields": []string{}}
	if found.Code() == codes.Unknown {
		shown["message"] = err.Error()
	}
	for _, detail := range found.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			shown["reason"], shown["domain"], shown["metadata"] = detail.Reason, detail.Domain, detail.Metadata
		case *errdetails.BadRequest:
			fields := []string{}
			for _, violation := range detail.FieldViolations {
				fields = append(fields, violation.Field)
			}
			shown["fields"] = fields
		}
	}
	return shown
}

var requests = 0

func fresh() string {
	requests++
	return fmt.Sprintf("go-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), requests)
}

func seconds(count float64) time.Duration {
	return time.Duration(count * float64(time.Second))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
