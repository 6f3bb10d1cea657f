import asyncio
import os
import time

from turnlog.v1 import event_pb2
from turnlog_server.domain.access import Caller, Role
from turnlog_server.domain.commands import *
from turnlog_server.domain.draft import Rules
from turnlog_server.domain.events import *
from turnlog_server.domain.ids import make_id
from turnlog_server.domain.session import *
from turnlog_server.service.clock import Clock
from turnlog_server.service.lane import Lane
from turnlog_server.service.submission import Submission
from turnlog_server.store.sessions import Sessions
from turnlog_server.store.writer import LogWriter
from turnlog_server.wire.events import encode


def payload(text):
    e = event_pb2.Event(); e.user_message.parts.add(text=text); return e.SerializeToString()

async def test_lane(database):
    db = database
    await db.write("x", "INSERT INTO workspaces (workspace_id,name) VALUES ('ws_1','x')")
    await db.write("x", "INSERT INTO workspace_epochs (workspace_id,acl_epoch) VALUES ('ws_1',1)")
    out=[]
    lane = Lane(LogWriter(db), encode, out.extend, Clock(), Rules())
    lane.start()
    caller = Caller("ws_1","prn_1","key_1",Role.MANAGER,1)
    async def judge(c): return c
    au=Author("prn_1","prn_1",Cause(CauseKind.API))
    pins=Pins("adep_1",1,"agt_1",1,"hpr_1","spr_1","default",60)
    n=0
    def sub(sid, cmd, rid, method="AppendEvent"):
        return Submission(sid, cmd, 1000, asyncio.get_running_loop().create_future(), caller, judge, (sid if method=="AppendEvent" else "ws_1", "prn_1", method, rid), b"f")
    loop=asyncio.get_running_loop()
    sids=[make_id("sess_", os.urandom(16)) for _ in range(64)]
    async def create(sid):
        f=SessionFacts(sid,"ws_1",pins,"prn_1",True,0,{"a":"b"})
        return await lane.submit(sub(sid, Create(f,au,payload("hi")), "c"+sid, "CreateSession"), loop.time()+30)
    rs=await asyncio.gather(*(create(s) for s in sids))
    assert all(r.answer.seq==2 for r in rs)
    t=time.perf_counter()
    p=payload("x"*1000)
    N=40
    async def worker(sid):
        for i in range(N):
            r=await lane.submit(sub(sid, SendMessage(au,p), f"r{i}"), loop.time()+30)
    await asyncio.gather(*(worker(s) for s in sids))
    dt=time.perf_counter()-t
    print("appends/s", 64*N/dt)
    # one replay
    r=await lane.submit(sub(sids[0], SendMessage(au,p), "r3"), loop.time()+30)
    assert r.replayed
    same=await asyncio.gather(*(lane.submit(sub(sids[0], SendMessage(au,p), "same"), loop.time()+30) for _ in range(50)))
    assert len({x.answer.seq for x in same})==1
    page=await Sessions(db).events("ws_1", sids[0], 0, count=1000, size=1<<20)
    assert [e[0] for e in page.events]==list(range(1,page.head_seq+1))
    t=time.perf_counter()
    for i in range(200):
        r=await lane.submit(sub(sids[i%64], SendMessage(au,p), f"s{i}"), loop.time()+30)
    print("lone p", (time.perf_counter()-t)/200*1e3, "ms")
    await lane.close()
